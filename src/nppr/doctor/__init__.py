"""The doctor: checks of a run, the flags they raise, and the grade that results."""

from nppr.doctor.examine import examine
from nppr.doctor.flags import audit_flags, effort_flags, flag, grade, number_flags, overlap_flags
from nppr.doctor.model_checks import check_inputs, check_model
from nppr.doctor.result_checks import check_ladder, check_results

__all__ = [
    "audit_flags",
    "check_inputs",
    "check_ladder",
    "check_model",
    "check_results",
    "effort_flags",
    "examine",
    "flag",
    "grade",
    "number_flags",
    "overlap_flags",
]
