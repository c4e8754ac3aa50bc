"""The package metadata, the tested versions and the layout say the same as the code."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
TOP_LEVEL = {
    *("covr_lab", "recipes", "tests", "tools", "setup.cfg", "pyproject.toml", "README.md"),
    *("LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "constraints.txt"),
}


def declared() -> dict[str, list[Requirement]]:
    """Extra ("" for the base install) -> its requirements, without references to the package's own extras."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    groups = {"": config["options"]["install_requires"], **config["options.extras_require"]}
    parsed = {extra: [Requirement(line) for line in text.strip().splitlines()] for extra, text in groups.items()}
    own = config["metadata"]["name"]
    return {extra: [item for item in items if item.name != own] for extra, items in parsed.items()}


def pinned() -> dict[str, str]:
    lines = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    return {canonicalize_name(name): version for name, version in lines}


def imported() -> dict[str, str]:
    """Third-party distribution -> one file of the package or the tools that imports it."""
    distributions = packages_distributions()
    tools = {path.stem for path in (ROOT / "tools").glob("*.py")}
    local = {"covr_lab", *tools, *sys.stdlib_module_names}
    found: dict[str, str] = {}
    for path in sorted([*(ROOT / "covr_lab").rglob("*.py"), *(ROOT / "tools").glob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for top in {name.partition(".")[0] for name in names} - local:
                distribution = canonicalize_name(distributions.get(top, [top])[0])
                found.setdefault(distribution, str(path.relative_to(ROOT)))
    return found


def tracked() -> list[str]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    files = listing.stdout.split("\0")[:-1]
    if not files:
        pytest.skip("not a git checkout with tracked files")
    return files


def test_every_requirement_has_a_lower_and_an_upper_bound() -> None:
    for extra, requirements in declared().items():
        for requirement in requirements:
            operators = {specifier.operator for specifier in requirement.specifier}
            assert operators == {">=", "<"}, f"[{extra}] {requirement}"


def test_imports_and_requirements_agree() -> None:
    base, imports = {canonicalize_name(item.name) for item in declared()[""]}, imported()
    known = {canonicalize_name(item.name) for items in declared().values() for item in items}
    assert {name: where for name, where in imports.items() if name not in known} == {}, "imported, not in setup.cfg"
    assert base - imports.keys() == set(), "in install_requires, never imported"


def test_tested_versions_satisfy_the_requirements() -> None:
    versions = pinned()
    for requirements in declared().values():
        for requirement in requirements:
            assert versions[canonicalize_name(requirement.name)] in requirement.specifier, str(requirement)


def test_constraints_are_pins_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    entries = [line for line in lines if line and not line.startswith("#")]
    assert len(entries) == len(pinned()), "a line of constraints.txt is not name==version, or a name repeats"


def test_top_level_is_closed() -> None:
    top = {file.partition("/")[0] for file in tracked()}
    assert {name for name in top if not name.startswith(".")} <= TOP_LEVEL


def test_no_file_depends_on_a_workplace() -> None:
    needles = [("/" + "work/").encode(), ("../" + "shared").encode(), ("." + "library").encode()]
    for file in tracked():
        if file == ".ci/run" or not (ROOT / file).is_file():
            continue
        content = (ROOT / file).read_bytes()
        assert not [needle for needle in needles if needle in content], file
