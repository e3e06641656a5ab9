from nppr import errors


def test_every_error_is_an_nppr_error() -> None:
    kinds = [each for each in vars(errors).values() if type(each) is type]
    assert errors.NpprError in kinds
    assert all(issubclass(kind, errors.NpprError) for kind in kinds)


def test_unknown_suggests_the_nearest_name_only_if_near() -> None:
    assert "Did you mean 'uniform'?" in str(errors.unknown("source", "unifrm", ["uniform", "pgd"]))
    assert "Did you mean" not in str(errors.unknown("source", "xyz", ["uniform", "pgd"]))
