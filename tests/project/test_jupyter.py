"""Every command that starts Jupyter keeps its token and listens to this machine only."""

import re

import pytest

from tests.project.source_tree import ROOT

COMMAND = re.compile(r"jupyter[ -](?:lab|notebook|server)\b(?=.* -)[^#`\n]*")
OPEN = re.compile(
    r"token|password|allow_remote_access|allow_origin|disable_check_xsrf|0\.0\.0\.0|::"
    r"|ip[= ](?!localhost\b|127\.0\.0\.1\b)|--allow-root"
)


def commands(text):
    return COMMAND.findall(text)


@pytest.mark.parametrize("name", ["README.md", "Makefile"])
def test_jupyter_commands_keep_the_token_and_bind_to_localhost(name):
    for command in commands((ROOT / name).read_text(encoding="utf-8")):
        assert not OPEN.search(command), command
        assert re.search(r"--(?:ServerApp\.)?ip[= ](?:localhost|127\.0\.0\.1)\b", command), command


def test_make_lab_starts_jupyter():
    assert len(commands((ROOT / "Makefile").read_text(encoding="utf-8"))) == 1


@pytest.mark.parametrize(
    "options",
    ["--ip=0.0.0.0", "--ServerApp.token=''", "--ip 10.0.0.1", "--IdentityProvider.token="],
)
def test_an_open_server_would_be_seen(options):
    [command] = commands(f"jupyter lab --ip=localhost {options}")
    assert OPEN.search(command)
