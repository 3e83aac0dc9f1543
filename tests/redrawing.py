"""A figure drawn once more from its points, as they are read from their file."""

from kt_lab import plots
from kt_lab.plots.save import write_points


def reread(points, name, directory):
    """Returns tables of points by panel, through the CSV that `save_figure` writes, alone.

    The PDF beside it would take as long as the picture, and nobody looks at it here.
    """
    return plots.read_points(write_points(points, name, directory=directory)[0])


def picture(figure):
    """Returns the PNG that `save_figure` writes."""
    return plots.png_bytes(figure, dpi=300)
