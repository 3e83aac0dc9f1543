"""Recording landscapes on a GPU: resumable, one config timed at a time."""

from kt_lab.record.estimate import estimate
from kt_lab.record.recording import Recording
from kt_lab.record.session import SessionOptions, SessionRecording
from kt_lab.record.spread import record
from kt_lab.record.state import Progress, RecordOptions
from kt_lab.record.table import fit_contention

__all__ = [
    "Progress",
    "RecordOptions",
    "Recording",
    "SessionOptions",
    "SessionRecording",
    "estimate",
    "fit_contention",
    "record",
]
