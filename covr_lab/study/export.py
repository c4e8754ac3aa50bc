"""Tables of a study as files: CSV of the numbers, LaTeX of the cells, JSON of everything."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from covr_lab.results.tables import Table

TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    sign: f"\\{sign}" for sign in "&%$#_{}"
}
WORDS = {"·": r"\textperiodcentered{}", "…": r"\ldots{}"}


def to_csv(table: Table) -> str:
    r"""The unrounded numbers of ``table``, a line a record; its cells when it has none.

    >>> to_csv(Table("t", "", ("run", "R@1"), (("a", "50.0"),), records=({"run": "a", "value": 50.123},)))
    'run,value\r\na,50.123\r\n'
    """
    text = io.StringIO()
    if table.records:
        writer = csv.DictWriter(text, list(dict.fromkeys(key for record in table.records for key in record)))
        writer.writeheader()
        writer.writerows(table.records)
    else:
        csv.writer(text).writerows([table.head, *table.rows])
    return text.getvalue()


def to_tex(table: Table, label: str, notes: Sequence[str]) -> str:
    """``table`` for a paper, in booktabs style; ``notes`` (conditions, proxy label) follow the title in the caption."""
    columns = "l" * table.labels + "r" * (len(table.head) - table.labels)
    caption = " ".join(f"{escape(part.rstrip('.'))}." for part in (table.title, *notes, table.note) if part)
    lines = [" & ".join(map(escape, line)) + r" \\" for line in (table.head, *table.rows)]
    body = [r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\label{{tab:{label}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            *body,
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escape(text: str) -> str:
    r"""``text`` as LaTeX shows it.

    >>> escape("50 % of R_1")
    '50 \\% of R\\_1'
    """
    return "".join((TEX | WORDS).get(sign, sign) for sign in text)


def clean(node: Any) -> Any:
    """Plain values for JSON: what is not a finite number becomes ``None``, numpy scalars become Python's.

    >>> clean({"a": (1.0, float("nan"))})
    {'a': [1.0, None]}
    """
    if isinstance(node, Mapping):
        return {str(key): clean(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [clean(value) for value in node]
    if hasattr(node, "item"):
        node = node.item()
    return None if isinstance(node, float) and not math.isfinite(node) else node


def plain_table(table: Table) -> dict[str, Any]:
    """``table`` for ``study.json``."""
    return {key: getattr(table, key) for key in ("title", "note", "head", "rows", "labels", "records")}
