"""The commands: their settings, help and examples, and the modules that do their work.

Nothing here imports PyTorch: `nppr.cli.app` makes the flags, checks what is typed, and imports
the module of a command afterwards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import model_validator

from nppr.cli.app import register
from nppr.errors import SpecError
from nppr.formats import run_folder_of
from nppr.noise.admissible_set import NPPR
from nppr.settings import (
    FLOOR_HELP,
    GRADE_LETTERS,
    RARE_CALLS,
    Assessment,
    BudgetSettings,
    DataSettings,
    Excerpt,
    Figures,
    Group,
    Measure,
    ModelSettings,
    Panel,
    Run,
    Search,
    TrainOptions,
    one_of,
    option,
    require_sigma,
)
from nppr.source_names import ALL, require_reference, require_source_names

LIMITS = ("inputs", "fit_inputs", "select_inputs", "seed")
KEPT = ("out", "resume", "overwrite", "device", "batch_size")
COMPUTED = ("device", "batch_size")
UNLISTED = ("engine", "only_merged", "noise_samples")
"""Settings of `Measure` that only some commands have."""

WITHOUT_SLICES = Excerpt(without=("slices",))
WITHOUT_FEATURE_MODEL = Excerpt(without=("feature_model", "feature_weights"))

QUIET_OPTION = option(False, "Print nothing but the path of the result.")
JSON_OPTION = option(False, "Print the result as JSON instead of a table.", flag="--json")
FIGURES_OPTION = option(
    (), "Also write the figures as files: svg,png,pdf.", Panel.OUTPUT, flag="--figures <str>"
)
DISTRIBUTION_OPTION = option(
    None, "Learned noise: a file written by nppr fit, or a folder of them.", Panel.NOISE
)


class MeasureOptions(Group):
    """Options of every command that measures: the question, the run folder and the output."""

    model: ModelSettings
    data: DataSettings
    budget: BudgetSettings
    measure: Annotated[Measure, Excerpt(without=UNLISTED)]
    run: Run
    quiet: bool = QUIET_OPTION
    rare: bool = option(
        False,
        "Search for failures rarer than one in the number of draws, by multilevel splitting, on inputs"
        " without a failure: for fixed noise, nppr and bound.",
        Panel.STATISTICS,
    )
    page: bool = option(
        True, "Write report.html, the page for readers. Default: yes.", Panel.OUTPUT
    )
    figures: Figures = FIGURES_OPTION
    as_json: bool = JSON_OPTION

    @model_validator(mode="after")
    def _require_valid(self) -> Self:
        if self.measure.rare_calls is not None and not self.rare:
            raise SpecError("`rare-calls` must be given with --rare, got it alone.")
        _ = self.measured
        return self

    @property
    def measured(self) -> Measure:
        """The settings of the run, with the calls for rare failures that are searched for."""
        if not self.rare or self.measure.rare_calls is not None:
            return self.measure
        return self.measure.with_(rare_calls=RARE_CALLS)


class SourcesOptions(MeasureOptions):
    """Options of the commands that measure any sources."""

    measure: Annotated[Measure, Excerpt(without=("only_merged",))]
    sources: str | None = option(None, "{sources}")
    distribution: Path | None = DISTRIBUTION_OPTION

    @model_validator(mode="after")
    def _require_sources(self) -> Self:
        if self.sources:
            require_source_names(self.sources, boxed=self.budget.transform is not None)
        return self


class EvaluateOptions(SourcesOptions):
    """Measure noise written by nppr fit, also at another radius or on another classifier.

    Writes report.json, per_input.csv and the page report.html to the run folder and prints the results
    as a table. The radius is that of the fit unless --eps is given. --sources adds others; by default
    there are none.

    nppr fit --dependency label --out runs/label
    nppr evaluate --distribution runs/label --eps 0.05
        learn the noise once, measure it at another radius
    nppr evaluate --distribution runs/label --rare --rare-calls 500000
        failures rarer than one in the number of draws
    """


class AssessOptions(SourcesOptions, Assessment):
    r"""Measure a classifier under the worst noise found, fixed noise, attacks and corruptions.

    All sources are measured on the same inputs. Writes report.json, per_input.csv and the page
    report.html to the run folder and prints the results as a table.

    nppr assess
        the demo: a small network on scikit-learn's digits, about a minute
    nppr assess --sources gaussian,uniform:scale=0.5,pgd:steps=20 --draws 200
        choose the sources, their options and the number of draws
    nppr assess --model resnet20 --weights w.safetensors \
                --data cifar-10-batches-py --eps 8/255
        a network of the zoo with your weights on CIFAR-10
    nppr assess --model my_model.py:make --data photos/ --resize 64 --eps 4/255
        your own model (this runs my_model.py) on a folder of images
    nppr assess --sources nppr,uniform --dependency input --floor 0,0.5
        the worst noise found that may depend on the input, and one that is
        half Uniform noise
    nppr assess --sources all --inputs 500 --eps 8/255
        the paper's table: noise, attacks, AutoAttack, corruptions, stress
    nppr assess --sources uniform,nppr --precision 0.01
        until every PR and NPPR is within ±1 percentage point
    nppr assess --noise-samples frames/
        PR under the noise of your sensor, and which structure it has
    nppr assess --draws 1000 --out runs/mine --resume
        continue an interrupted run: the same command with --resume
    """

    measure: Measure
    search: Search


class FitOptions(Group):
    """Learn the worst admissible noise for a classifier, on the fit and select splits.

    Writes each distribution to the run folder, as distributions/NAME.safetensors. Measure them with
    nppr evaluate.

    nppr fit --dependency label --out runs/label
        learn noise that may depend on the label; measure it with nppr evaluate
    """

    model: ModelSettings
    data: Annotated[DataSettings, WITHOUT_SLICES]
    budget: BudgetSettings
    search: Search
    measure: Annotated[
        Measure,
        Excerpt(
            only=(*LIMITS, "quantise", "effort"),
            words={
                "inputs": "At most this many inputs of the evaluate split; nothing is fitted on them."
            },
        ),
    ]
    run: Annotated[Run, Excerpt(only=KEPT)]
    quiet: bool = QUIET_OPTION


class SpectrumOptions(MeasureOptions):
    """Measure NPPR against the floor rho: from the paper's set (0) to Uniform noise (1).

    Writes the same run folder as assess.

    nppr spectrum --dependency independent
        from attack-like to noise-like: NPPR against the least randomness rho
    """

    search: Annotated[
        Search, Excerpt(words={"floor": FLOOR_HELP}, defaults={"floor": (0, 0.25, 0.5, 0.75, 1)})
    ]


class BoundOptions(MeasureOptions):
    """Bound robustness from below under all noise of a set around a reference noise.

    Once for noise that may see the input, once for noise that does not. Writes the same run folder as
    assess.

    nppr bound --reference uniform --density-ratio 1,2,5,10
        lower bounds under all noise of density up to c times Uniform noise
    nppr bound --set tv:0.01,0.05
        the same for noise within 1 and 5 % of it in total variation
    nppr bound --set tv --at-least 0.95
        how far may the noise move while 95 % is still shown to hold?
    """

    noise_set: str = option(
        "ratio",
        "The set of noise, KIND or KIND:SIZE,SIZE: {noise_sets}.",
        flag="--set",
    )
    reference: str = option("uniform", "The reference noise: uniform, gaussian or laplace.")
    distribution: Path | None = option(
        None, "Noise learned by nppr fit as the reference: its file, or a folder of such files."
    )
    density_ratio: str | None = option(
        None,
        "Values of c, separated by commas: the density is at most c times that of the reference."
        " Default: {ratios}; 2 for contaminated.",
    )
    patterns: int = option(
        1000,
        "Patterns shared by all inputs, for the sharper bound on noise that does not see the input;"
        " 0 leaves it out.",
    )
    at_least: float | None = option(
        None, "Print the largest set for which at least this is still shown to hold, such as 0.95."
    )

    @model_validator(mode="after")
    def _require_reference(self) -> Self:
        require_reference(self.reference, boxed=self.budget.transform is not None)
        return self


class BracketOptions(MeasureOptions):
    """Bracket robustness under Gaussian noise of sigma plus the worst offset of l2 length up to R.

    The lower end holds for every such offset, input-dependent or not, by Neyman and Pearson; the upper
    end is that of the worst offset found for each input on its own. Writes the same run folder as
    assess.

    nppr bracket --eps 0.25 --sigma 0.25 --weights noisy.safetensors
        at least and at most, under Gaussian noise with the worst offset up to
        0.25, of a network trained with nppr train --method gaussian --sigma 0.25
    nppr bracket --eps 0.25 --sigma 0.25 --radii 0.0625,0.125,0.5 --figures png
        the same for shorter and longer offsets, and the picture
    """

    budget: Annotated[
        BudgetSettings,
        Excerpt(
            without=("transform",),
            words={
                "norm": "Norm of the offset: l2, the norm that belongs to Gaussian noise.",
                "eps": "Longest offset R, in the l2 norm, such as 0.25.",
            },
            defaults={"norm": "l2"},
        ),
    ]
    measure: Annotated[
        Measure,
        Excerpt(
            without=(*UNLISTED, "effort"),
            words={
                "radii": "Brackets at these R too, separated by commas: 0.05,0.1.",
                "draws": "Noise drawn per input, without an offset and under the worst one found.",
            },
            defaults={"draws": 500},
        ),
    ]
    sigma: float | None = option(
        None, "Standard deviation of the Gaussian noise per pixel, such as 0.25."
    )
    search_calls: int | None = option(
        None,
        "Forward and backward passes per input of the search for the worst offset, at least"
        " {fewest_offset_calls}. Default: {offset_calls}.",
        Panel.SEARCH,
    )

    @model_validator(mode="after")
    def _require_bracket(self) -> Self:
        if self.budget.norm != "l2":
            raise SpecError(
                f"`norm` must be l2 for a bracket, got {self.budget.norm!r}: Gaussian noise of sigma"
                " bounds offsets by their l2 length. Example: --norm l2 --eps 0.25 --sigma 0.25"
            )
        require_sigma(self.sigma, "for a bracket: the standard deviation per pixel")
        if self.measure.precision is not None:
            raise SpecError(
                "`precision` must be left out here: the bounds hold for a number of draws that was"
                " fixed beforehand. Example: --draws 2000"
            )
        if self.measure.confidence < 0.5:
            raise SpecError(
                f"`confidence` must be at least 0.5 here, got {self.measure.confidence:g}."
                " Example: 0.95"
            )
        return self


class CertifyOptions(Group):
    """Decide whether robustness is at least a given value, with no more draws than that takes.

    Exit codes: 0 holds, 1 violated, 3 undecided.

    nppr certify --source uniform --at-least 0.9
        is robustness at least 90 %? Draw until that is decided
    nppr certify --source uniform --set tv:0.05 --at-least 0.9
        the same under all noise within 5 % of Uniform noise in total variation
    nppr certify --source nppr --distribution runs/label --at-least 0.8
        the same under noise learned by nppr fit
    """

    model: ModelSettings
    data: Annotated[DataSettings, WITHOUT_SLICES]
    budget: BudgetSettings
    measure: Annotated[
        Measure,
        Excerpt(
            only=(*LIMITS, "quantise", "confidence"),
            words={"confidence": "Confidence of the verdict."},
        ),
    ]
    run: Annotated[Run, Excerpt(only=COMPUTED)]
    source: str = option(
        "uniform", "One source, as in --sources of assess; nppr with --distribution."
    )
    at_least: float = option(0.9, "Robustness to test for.")
    noise_set: str | None = option(
        None,
        "Test it for all noise of a set around the source, KIND:SIZE: {set_examples}"
        " (contaminated with --density-ratio).",
        flag="--set",
    )
    density_ratio: float | None = option(None, "c of the set contaminated. Default: 2.")
    about: Annotated[str, one_of(("population", "test-set"))] = option(
        "population",
        "population: each input is used once. test-set: inputs are drawn with replacement, so draws"
        " do not run out.",
    )
    calls: int = option(100_000, "Classify at most this many images.")
    per_class: bool = option(False, "Also give a verdict for every class.")
    distribution: Path | None = DISTRIBUTION_OPTION
    quiet: bool = option(False, "Show no progress.")
    as_json: bool = JSON_OPTION

    @model_validator(mode="after")
    def _require_question(self) -> Self:
        if not 0 < self.at_least < 1:
            raise SpecError(f"`at-least` must lie in (0, 1), got {self.at_least}. Example: 0.9")
        if (self.source.split(":")[0] in (NPPR, ALL) and self.source != NPPR) or "," in self.source:
            raise SpecError(f"`source` must name one source, got {self.source!r}. Example: uniform")
        if self.source != NPPR and self.distribution is not None:
            raise SpecError(
                "`distribution` must be given with --source nppr only, got it with"
                f" {self.source!r}."
            )
        if self.source == NPPR and self.distribution is None:
            raise SpecError(
                "`distribution` must be given with --source nppr: the folder written by nppr fit."
                " Example: --distribution runs/fit"
            )
        if self.distribution is None:
            require_source_names(self.source, boxed=self.budget.transform is not None)
        return self


class DoctorOptions(Group):
    """Check a classifier and its data before measuring robustness: warnings and a grade, A to D.

    Examines pixels, labels, copies across the splits, outputs, gradients and clean accuracy.
    docs/flags.md explains each warning and what to do. The exit code is 0 whatever the grade, or 1
    if it is worse than that of --fail-below.

    nppr doctor --model my_model.py:make --data photos/
        can the numbers of this model on these data be trusted?
    nppr doctor --fail-below B
        exit with code 1 where the grade is C or D
    """

    model: Annotated[ModelSettings, WITHOUT_FEATURE_MODEL]
    data: Annotated[DataSettings, WITHOUT_SLICES]
    measure: Annotated[Measure, Excerpt(only=LIMITS)]
    run: Annotated[Run, Excerpt(only=COMPUTED)]
    fail_below: Annotated[str | None, one_of(GRADE_LETTERS)] = option(
        None, "Exit with code 1 if the grade is worse than this one: A, B, C or D."
    )
    as_json: bool = JSON_OPTION


class GateOptions(Group):
    """Decide every requirement of a policy, at one confidence for all of them together.

    It stops once all are decided. Exit codes: 0 all hold, 1 at least one is violated, 2 bad input, 3
    none is violated but at least one is undecided, as is what could not be measured. A requirement
    on NPPR or AR can hold only for the noise or attack found; docs/gate.md states what verdicts mean.

    nppr gate policy.toml --junit gate.xml --markdown gate.md
        decide the requirements of a policy and write the verdicts for CI
    nppr gate policy.toml --weights new.safetensors
        the same policy for other weights
    """

    policy: Path = option(
        ..., "The policy: a TOML file with requirements and options.", flag="POLICY"
    )
    junit: Path | None = option(None, "Write the verdicts as JUnit XML.")
    markdown: Path | None = option(None, "Write a summary for a pull request.")
    model: str | None = option(None, "Model instead of the policy's, as in nppr assess.")
    weights: str | None = option(None, "Weights instead of the policy's, as in nppr assess.")
    data: str | None = option(None, "Data instead of the policy's, as in nppr assess.")
    run: Path | None = option(
        None, "Run folder instead of the policy's, for grade, flags and learned noise."
    )
    execution: Annotated[
        Run,
        Excerpt(
            only=("out", "device"),
            words={
                "out": "Folder for the run that is measured for grade, flags and learned noise."
                " Default: not kept."
            },
        ),
    ]
    run_code: bool = option(
        False, "Allow the policy to run the Python code that it names as models."
    )
    quiet: bool = option(False, "Print nothing but the outcome, in one line.")
    as_json: bool = JSON_OPTION


class ReportOptions(Group):
    """Render the page of a run again, or its table for a paper.

    Reads report.json, per_input.csv and evidence.safetensors in the folder and changes none of them.
    The page is one file that needs no network.

    nppr report runs/mine --figures svg,pdf
        render the page of a run again, and its figures as files
    nppr report runs/mine --format latex
        its table for a paper
    """

    run: Path = option(..., "A run folder, such as that of nppr assess.", flag="RUN")
    out: Path | None = option(
        None,
        "File to write. Default: report.html or per_input.parquet in RUN; tables are printed.",
    )
    form: str = option(
        "html",
        "html: the page; md, csv, latex or json: the table of results alone; parquet: the rows of"
        " per_input.csv (extra parquet).",
        flag="--format",
    )
    figures: Figures = FIGURES_OPTION
    quiet: bool = QUIET_OPTION


class SchemaOptions(Group):
    """Print the JSON Schema of report.json.

    Programs in other languages can check a report or generate types from it.

    nppr schema --out report.schema.json
        the JSON Schema of report.json, for programs in other languages
    """

    out: Path | None = option(None, "File to write. Default: the schema is printed.")


class ExportOptions(Group):
    """Write documents for assessors from a run: safety case, technical documentation, model card.

    Reads report.json alone. Numbers that a flag makes unreliable are findings, not evidence.

    nppr export runs/mine --to technical-documentation
        its numbers as a section of technical documentation, in Markdown
    nppr export runs/mine --to cyclonedx
        its numbers as a CycloneDX model card
    """

    run: Path = option(..., "A run folder, such as that of nppr assess.", flag="RUN")
    to: str = option("safety-case", "The document: {exports}.")
    gate: Path | None = option(
        None,
        "Output of nppr gate --json for the same classifier: the safety case argues for its"
        " requirements.",
    )
    out: Path | None = option(None, "Folder to write to. Default: exports in RUN.")


class CompareOptions(Group):
    """Say which classifier is more robust, from runs on the same inputs.

    Runs that differ in the seed alone become one entry: mean and standard deviation over seeds.

    nppr compare runs/resnet20 runs/resnet32
        which of two runs is more robust: the answer, paired differences, a page
    """

    runs: list[Path] | None = option(None, "Run folders of nppr assess, two or more.", flag="RUN")
    measure: Annotated[
        Measure,
        Excerpt(
            only=("confidence", "seed"),
            words={
                "confidence": "Confidence of all verdicts together.",
                "seed": "Seed that orders the inputs in the betting tests of rates.",
            },
        ),
    ]
    run: Annotated[
        Run,
        Excerpt(
            only=("out", "overwrite"),
            words={
                "out": "Folder of the comparison. Default: one under runs/ for these runs.",
                "overwrite": "Replace another comparison in --out.",
            },
        ),
    ]
    formats: str = option(
        "html,md,csv,latex,json", "What to write beside compare.json.", flag="--format"
    )
    allow_different_data: bool = option(
        False, "Show runs on different inputs side by side, without verdicts."
    )
    quiet: bool = QUIET_OPTION

    @model_validator(mode="after")
    def _require_runs(self) -> Self:
        runs = self.runs or []
        for run in runs if len(runs) > 1 else ():
            run_folder_of(run)
        return self


class StudyOptions(Group):
    """Run a study: many searches and measurements from one file, each computed once, and their tables.

    Finished nodes are kept in the cache, so the same command continues where it stopped.

    nppr study studies/small/digits_main.toml --plan
        show what would run; leave --plan out to run it
    nppr study studies/small/digits_main.toml --workers 2
        in two processes; the same command continues after an interruption
    """

    file: Path = option(..., "The study, a TOML file (docs/studies.md).", flag="FILE")
    plan: bool = option(False, "Print nodes, calls and the expected time, and run nothing.")
    paths: list[str] | None = option(
        None, "Another value for a name in [paths] of the study.", flag="--set NAME=PATH"
    )
    cache: Path = option(Path("runs/cache"), "Folder of finished nodes, shared by studies.")
    figures: Figures = option(
        (),
        "Also draw the learned noise for papers, in the folder of the tables: svg,png,pdf.",
        Panel.OUTPUT,
        flag="--figures <str>",
    )
    run: Annotated[
        Run,
        Excerpt(
            only=("out", "device", "workers", "ray"),
            words={
                "out": "Folder of the tables. Default: runs/studies/NAME.",
                "workers": "Processes on this machine. Default: 1.",
                "ray": "Run on the Ray cluster at this address (HOST:PORT or auto; extra ray). Without"
                " an address: a cluster of --workers processes is started on this machine.",
            },
        ),
    ]
    run_code: bool = option(
        False,
        "Allow the study to run the Python code that it names as models. --plan never runs any.",
    )
    yes: bool = option(False, "Run a study of more than 10,000 nodes.")
    quiet: bool = QUIET_OPTION


class TrainCommandOptions(Group):
    """Train a network of the zoo from scratch and write its weights as safetensors.

    It is trained on the fit and select splits of the data; the evaluate split is kept for measuring.
    Options that are left out have defaults that suit the network. A log is written beside the weights.

    nppr train digits-cnn --out digits.safetensors
        train the demo's network from scratch
    nppr train resnet18 --data cifar-10-batches-py --method pgd --eps 8/255
        adversarial training
    nppr train digits-cnn --method gaussian --sigma 0.25 --out noisy.safetensors
        training with Gaussian noise, for nppr bracket
    """

    network: str = option(..., "Name of a network of the zoo.", flag="MODEL")
    training: Annotated[TrainOptions, Excerpt(without=("seed",))]
    model: Annotated[ModelSettings, Excerpt(only=("stem",))]
    data: Annotated[DataSettings, WITHOUT_SLICES]
    measure: Annotated[
        Measure,
        Excerpt(
            only=LIMITS,
            words={
                "inputs": "At most this many inputs of the evaluate split, which gives the accuracy.",
                "seed": "Seed of subsets, initial weights, order, crops, flips, noise and attacks.",
            },
        ),
    ]
    run: Annotated[
        Run,
        Excerpt(
            only=("out", "resume", "overwrite", "device"),
            words={
                "out": "Weights file. Default: MODEL.safetensors.",
                "resume": "Continue an interrupted training.",
                "overwrite": "Replace files that exist, and start an unfinished training again.",
            },
        ),
    ]
    quiet: bool = option(False, "Print nothing but the path of the weights.")


register("assess", AssessOptions, "nppr.cli.measure_commands")
register("fit", FitOptions, "nppr.cli.measure_commands")
register("evaluate", EvaluateOptions, "nppr.cli.measure_commands")
register("spectrum", SpectrumOptions, "nppr.cli.measure_commands")
register("bound", BoundOptions, "nppr.cli.measure_commands")
register("bracket", BracketOptions, "nppr.cli.measure_commands")
register("certify", CertifyOptions, "nppr.cli.check_commands")
register("gate", GateOptions, "nppr.cli.check_commands")
register("doctor", DoctorOptions, "nppr.cli.check_commands")
register("report", ReportOptions, "nppr.cli.report_commands")
register("schema", SchemaOptions, "nppr.cli.report_commands")
register("export", ExportOptions, "nppr.cli.report_commands")
register("compare", CompareOptions, "nppr.cli.report_commands")
register("study", StudyOptions, "nppr.cli.study_command")
register("train", TrainCommandOptions, "nppr.cli.train_command")
