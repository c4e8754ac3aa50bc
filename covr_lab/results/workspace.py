"""The saved view of a study on Weights & Biases, as a specification; needs the extra ``dashboards``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from unicodedata import category

from covr_lab.results.plots import colour
from covr_lab.results.wandb_log import obstacle
from covr_lab.results.wandb_study import DIFFERENCES, EXAMPLES, MODES
from covr_lab.types import Refused

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Section, Workspace

CURVES: Final = ("R@1", "R@5", "R@10", "BRI", "MRR")
RATES: Final = ("improved", "drift", "repeat", "rejected_shown_again", "recovery")
COSTS: Final = ("calls", "tokens_in", "tokens_out")
MAX_RUNS = 100  # lines in a panel


def study_workspace(
    group: str, project: str, *, entity: str = "", systems: Sequence[str] = (), tables: Sequence[str] = ()
) -> Workspace:
    """Curves over turns, failure modes, differences, cost and tables of one group, coloured by system.

    Args:
        group: group that the study was logged to.
        project: its project.
        entity: user or team; needed to save the view, not to write it down.
        systems: in the order of their colours; without names the service colours them.
        tables: keys of the report's tables, after failure modes and example dialogues.

    Raises:
        Refused: the package is missing, or refuses a name.
    """
    try:
        import wandb_workspaces.workspaces as ws
        from wandb_workspaces import expr
    except ImportError as error:
        raise Refused("wandb-workspaces is not installed: pip install 'covr_lab[dashboards]'") from error
    leaves: list[Any] = [expr.Config("system"), expr.Config("condition")]  # one run each: nothing is averaged
    try:
        view = ws.Workspace(
            entity=entity,
            project=project,
            name="".join(" " if category(char)[0] == "S" else char for char in f"Study {group}"),  # refused as emoji
            sections=_sections([MODES, EXAMPLES, *tables]),
            settings=ws.WorkspaceSettings(x_axis="turn", max_runs=MAX_RUNS),
            runset_settings=ws.RunsetSettings(
                filters=expr.And(expr.Metric("Group") == group),
                groupby=leaves,
                order=[expr.Ordering(expr.Metric("Name"), ascending=True)],
                group_colors={system: colour(number) for number, system in enumerate(systems)},
            ),
        )
        kept = specification(view)["spec"]["section"]["runSets"][0]["filters"]["filters"][0]["value"]
    except (SyntaxError, ValueError) as error:
        raise Refused(f"group '{group}': {' '.join(str(error).split())}") from error
    if kept != group:  # the package reads filters back from text
        raise Refused(f"group '{group}' would be looked for as '{kept}': give --group, and wandb.group, a plainer name")
    return view


def _sections(tables: Sequence[str]) -> list[Section]:
    from wandb_workspaces.reports.v2.interface import BarPlot, Layout, LinePlot, WeavePanelSummaryTable
    from wandb_workspaces.workspaces import Section

    curves = [LinePlot(title=f"{name} by turn", x="turn", y=[name], title_x="turn") for name in CURVES]
    bars = [BarPlot(title=name.replace("_", " "), metrics=[f"transitions/{name}"]) for name in RATES]
    gains = [BarPlot(title=f"{name} at the last turn", metrics=[f"difference/{name}"]) for name in DIFFERENCES]
    costs = [LinePlot(title=f"{name} by turn", x="turn", y=[f"cost/{name}"], title_x="turn") for name in COSTS]
    kept = [WeavePanelSummaryTable(table_name=key, layout=Layout(w=24, h=12)) for key in tables]
    sections: dict[str, list[Any]] = {
        "By turn": curves,
        "Failure modes, percent of active transitions": bars,
        "Difference to the baseline": gains,
        "Cost, all sessions": costs,
        "Tables": kept,
    }
    return [Section(name=name, panels=panels, is_open=True) for name, panels in sections.items()]


def specification(workspace: Workspace) -> Mapping[str, Any]:
    """The view as plain values, as the service would get it; nothing is sent."""
    view: Mapping[str, Any] = workspace._to_model().model_dump(mode="json", by_alias=True, exclude_none=True)
    return view


def save(workspace: Workspace) -> str:
    """Save the view; returns its address.

    Raises:
        Refused: no key, no network, no entity, or the service says no.
    """
    if why := obstacle():
        raise Refused(f"the view cannot be saved: {why}; set WANDB_API_KEY, or leave --save out to write it down")
    import wandb

    try:
        workspace.entity = workspace.entity or wandb.Api().default_entity or ""
        if not workspace.entity:
            raise Refused("the key has no default entity: give --entity")
        workspace.save()  # type: ignore[no-untyped-call]
        return str(workspace.url)
    except Refused:
        raise
    except Exception as error:  # wandb raises many kinds
        raise Refused(f"the view was not saved: {' '.join(str(error).split())}") from error
