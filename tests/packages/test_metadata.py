"""The files for PyPI: the metadata, the README for PyPI, the source archive; and all lists of Pythons agree."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import tomllib
import trove_classifiers
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
#: Addresses of a different owner, in place of the repository's address.
REPOSITORY = "https://forge.example/owner/bolide"


def run(*command, **options):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


@pytest.fixture
def metadata():
    return importlib.metadata.metadata("bolide")


def test_every_classifier_is_one_of_pypi_s(metadata):
    classifiers = metadata.get_all("Classifier")
    assert len(classifiers) > 15
    assert sorted(set(classifiers) - trove_classifiers.classifiers) == []
    # The license is an expression; PyPI does not accept a license classifier besides it.
    assert metadata["License-Expression"] == "MIT OR Apache-2.0"
    assert not [one for one in classifiers if one.startswith("License")]


def test_the_pythons_of_the_metadata_are_those_that_wheels_are_made_and_tested_for(metadata):
    told = re.findall(r"Python :: (3\.\d+)$", "\n".join(metadata.get_all("Classifier")), re.MULTILINE)
    assert metadata["Requires-Python"] == f">={told[0]}"
    (made,) = re.findall(r"^pythons=\$\{PYTHONS:-(.*)\}$", (SCRIPTS / "wheels").read_text(), re.MULTILINE)
    assert made.split() == told
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    tested = {*jobs["pythons"]["strategy"]["matrix"]["python"], jobs["all"]["container"]["image"].split(":")[1].split("-")[0]}
    assert tested == set(told)


def test_the_package_contains_the_bill_of_materials_of_its_native_module():
    files = importlib.metadata.files("bolide")
    (bill,) = [file for file in files if "sboms" in file.parts]
    components = {component["name"] for component in json.loads(bill.read_text())["components"]}
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    assert {"rustls", "pyo3"} <= components <= {package["name"] for package in locked}


def test_the_readme_of_pypi_is_made_from_the_readme():
    done = run(sys.executable, SCRIPTS / "pypi-readme", "--check")
    assert done.returncode == 0, done.stdout


@pytest.fixture
def checkout(tmp_path):
    """The files that scripts/pypi-readme and scripts/publisher.py read and write, in a private directory."""
    for name in (
        "scripts/pypi-readme",
        "scripts/publisher.py",
        "README.md",
        "pyproject.toml",
        "packaging/README-pypi.md",
        "packaging/publisher.toml",
        "SECURITY.md",
        "CODE_OF_CONDUCT.md",
        "MAINTAINERS.md",
        ".github/ISSUE_TEMPLATE/config.yml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def publish(checkout, **names):
    """Gives the publisher's names these values, and runs both scripts."""
    file = checkout / "packaging" / "publisher.toml"
    text = file.read_text()
    for name, value in names.items():
        text = re.sub(rf"^{name} = .*$", f"{name} = {json.dumps(value)}", text, flags=re.MULTILINE)
    file.write_text(text)
    for script in ("publisher.py", "pypi-readme"):
        done = run(sys.executable, checkout / "scripts" / script)
        assert done.returncode == 0, done.stdout


def links(text):
    return re.findall(r"\]\(([^)\s]+)\)", text)


def test_a_readme_without_the_repository_s_address_has_no_link_that_leads_nowhere(checkout):
    publish(checkout, repository="")
    text = (checkout / "packaging/README-pypi.md").read_text()
    assert [link for link in links(text) if ":" not in link and not link.startswith("#")] == []
    assert "pip install bolide" in text


def test_the_repository_s_address_makes_links_absolute(checkout):
    publish(checkout, repository=REPOSITORY)
    text = (checkout / "packaging/README-pypi.md").read_text()
    assert f"]({REPOSITORY}/blob/HEAD/CHANGELOG.md)" in text
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert pictures
    assert all(picture.startswith(f"{REPOSITORY}/raw/HEAD/") for picture in pictures)
    paths = [
        re.match(r"/(?:blob|raw)/HEAD/([^#]+)", link[len(REPOSITORY) :]) for link in links(text) if link.startswith(REPOSITORY)
    ]
    assert len(paths) > 20
    assert [path[1] for path in paths if not (ROOT / path[1]).exists()] == []
    assert [link for link in links(text) if ":" not in link and not link.startswith("#")] == []


def test_the_project_s_links_are_the_publisher_s(checkout):
    publish(checkout, repository="", site="")
    assert "urls" not in tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    # A slash at the end does not matter.
    publish(checkout, repository=f"{REPOSITORY}/", site="https://docs.example/bolide")
    assert tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["urls"] == {
        "Homepage": "https://docs.example/bolide",
        "Documentation": "https://docs.example/bolide",
        "Changelog": f"{REPOSITORY}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{REPOSITORY}/issues",
        "Repository": REPOSITORY,
    }
    issues = yaml.safe_load((checkout / ".github/ISSUE_TEMPLATE/config.yml").read_text())
    assert f"{REPOSITORY}/discussions" in {contact["url"] for contact in issues["contact_links"]}
    publish(checkout, repository="https://forge.example/other")
    assert REPOSITORY not in (checkout / "pyproject.toml").read_text()


def test_the_publisher_s_names_are_the_contacts_of_the_policies(checkout):
    publish(checkout, repository=REPOSITORY, security="security@bolide.example", maintainers=["A. Name (a-name)"])
    security = (checkout / "SECURITY.md").read_text()
    assert "<security@bolide.example>" in security
    assert f"({REPOSITORY}/security/advisories/new)" in security
    assert "<security@bolide.example>" in (checkout / "CODE_OF_CONDUCT.md").read_text()
    assert "\n* A. Name (a-name)\n" in (checkout / "MAINTAINERS.md").read_text()


def test_what_is_made_of_the_publisher_s_names_is_up_to_date():
    done = run(sys.executable, SCRIPTS / "publisher.py", "--check")
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sdist")
    done = run(sys.executable, "-m", "maturin", "sdist", "--out", directory, cwd=ROOT)
    assert done.returncode == 0, done.stdout
    (made,) = directory.iterdir()
    return made


def test_the_source_archive_has_all_that_a_build_reads_and_pypi_takes_it(archive, tmp_path):
    done = run(sys.executable, "-m", "twine", "check", "--strict", archive)
    assert done.returncode == 0, done.stdout
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (directory,) = tmp_path.iterdir()
    for name in (
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "Cargo.lock",
        "pyproject.toml",
        "packaging/publisher.toml",
        "packaging/build/program.c",
        "packaging/build/program.py",
        "adapters/cpython/build.rs",
        "python/bolide/py.typed",
    ):
        assert (directory / name).is_file(), name
    sources = run("git", "ls-files", "crates/*.rs", "adapters/cpython/*.rs", "python/*.py*", "crates/*/Cargo.toml", cwd=ROOT)
    assert [name for name in sources.stdout.split() if (ROOT / name).exists() and not (directory / name).is_file()] == []
    # The lock file belongs to the packed sources: no other version is resolved.
    done = run("cargo", "metadata", "--locked", "--offline", "--format-version", "1", cwd=directory)
    assert done.returncode == 0, done.stdout


def test_a_wheel_is_installed_without_the_network_and_serves():
    wheels = list((ROOT / "build" / "wheels").glob("bolide-*.whl"))
    assert len(wheels) == 1, f"scripts/test builds one wheel into build/wheels before its tests; there are {wheels}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BOLIDE_", "UWSGI_"))}
    done = run(sys.executable, SCRIPTS / "try-installed", wheels[0].parent, env=environment)
    assert done.returncode == 0, done.stdout
    assert "served by Python {}.{}".format(*sys.version_info) in done.stdout
