"""The command line: what each command prints, how it ends, and that whatever is wrong is said in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from verifier import __version__
from verifier.cli import main
from verifier.formats import load

DATA = Path(__file__).parent / "data"
TABLE = str(DATA / "torch" / "ScheduleZBVZeroBubble_P4_M8.csv")
W_BEFORE_I = str(DATA / "cases" / "derived__dualpipev_W_before_I.csv")
MISSING_W = str(DATA / "cases" / "derived__dualpipev_missing_0W9_trailing_comma.csv")
DUALPIPE = ("dualpipe", "-P", "8", "-M", "20")


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def result(*words, code=0):
    """What a command that should end with ``code`` prints."""
    ended = run(*words)
    assert ended.exit_code == code, ended.output
    assert ended.stderr == "" or words[0] == "export"
    return ended.stdout


def complaint(*words):
    """The one line with which a command refuses."""
    ended = run(*words)
    assert ended.exit_code == 2, ended.output
    assert ended.stdout == ""
    assert ended.stderr.endswith("\n")
    assert ended.stderr.count("\n") == 1
    return ended.stderr


# --------------------------------------------------------------------------------------------------------------- commands


def test_help_and_version():
    assert "verifier show dualpipe -P 8 -M 20" in result("--help")
    assert result() == result("-h")
    assert result("--version").strip().endswith(__version__)
    for command in main.commands:
        assert "Usage: " in result(command, "--help")


def test_families():
    assert "(P/2-1)(FB+B-3W)" in result("families")
    found = {family["name"]: family for family in json.loads(result("families", "--json"))}
    assert found["dualpipe"]["conditions"] == "P even, M even, M >= 2P"
    idle = found["dualpipe"]["claims"][0]
    assert (idle["quantity"], idle["formula"], idle["source"]) == ("idle", "(P/2-1)(FB+B-3W)", "arXiv:2412.19437, table 2")


def test_verify_of_the_reports_schedule():
    found = json.loads(result("verify", *DUALPIPE, "--activations", 9, "--weights", 2, "--json", "--solver", "replay"))
    assert (found["schedule"], found["status"], found["makespan"]) == ("dualpipe P=8 M=20", "proved", 66)
    assert (found["idle"], found["bubble_ratio"]) == ([6] * 8, "1/11")
    assert found["peak_activations"] == [9] * 8
    assert found["overlapped"] == [9, 10, 11, 11, 11, 11, 10, 9]
    assert {found["properties"][name]["status"] for name in ("activations", "weights", "complete")} == {"proved"}


def test_verify_names_rank_and_block_of_what_it_refutes():
    words = ("verify", *DUALPIPE, "--activations", 8, "--solver", "replay")
    assert "rank 0, position 17: (0F7;7B3') brings the live activations to 9; the limit is 8" in result(*words, code=1)
    witness = json.loads(result(*words, "--json", code=1))["properties"]["activations"]["witness"][0]
    assert (witness["rank"], witness["position"], witness["op"]) == (0, 17, "(0F7;7B3')")


def test_verify_of_files():
    assert "proved" in result("verify", TABLE, "--solver", "replay")
    assert "rank 0, cell 8" in result("verify", W_BEFORE_I, "--solver", "replay", code=1)
    assert "0W9 is missing" in result("verify", MISSING_W, "--solver", "replay", code=1)


def test_verify_counts_micro_batches():
    assert "micro-batches 8..9 of 10 missing" in result("verify", TABLE, "-M", 10, "--solver", "replay", code=1)
    assert "out of range" in result("verify", TABLE, "--microbatches", 4, "--solver", "replay", code=1)


def test_an_unknown_verdict_ends_with_3(monkeypatch):
    from verifier.verify import Report

    monkeypatch.setattr(Report, "status", "unknown")
    assert "unknown" in result("verify", "1f1b", "-P", 2, "-M", 2, "--solver", "replay", code=3)


def test_verify_against_a_spec():
    words = ("verify", DATA / "torch" / "ScheduleDualPipeV_P4_M10.csv", "--solver", "replay", "--spec")
    found = json.loads(result(*words, "specs/dualpipev-p4-m10.toml", "--json"))
    assert found["properties"]["claims"]["status"] == found["properties"]["activations"]["status"] == "proved"
    assert "absent.toml: cannot be read" in complaint(*words, "specs/absent.toml")


def test_verify_against_a_spec_that_expects_something_else(tmp_path):
    spec = tmp_path / "x.toml"
    spec.write_text("[expect]\nmakespan = 65\n")
    text = result("verify", *DUALPIPE, "--spec", spec, "--solver", "replay", code=1)
    assert "claims.makespan: expected 65, found 66" in text


def test_verify_reads_the_older_dialect():
    legacy = next((DATA / "cases").glob("*legacyB.csv"))
    assert "dialect" in result("verify", legacy, "--solver", "replay", code=1)
    assert "proved" in result("verify", legacy, "--dialect", "legacy", "--solver", "replay")


@pytest.mark.parametrize(
    ("costs", "makespan", "idle"),
    [
        ("F=2,I=2,W=2,FB=5", 118, [7, 8, 9, 9, 9, 9, 8, 7]),
        ("F=10,I=12,W=9,FB=26", 619, [44, 49, 54, 54, 54, 54, 49, 44]),
    ],
)
def test_show_under_costs(costs, makespan, idle):
    found = json.loads(result("show", *DUALPIPE, "--costs", costs, "--json"))
    assert (found["makespan"], found["idle"]) == (makespan, idle)
    assert "status" not in found


def test_show_says_when_no_rank_idles():
    found = json.loads(result("show", *DUALPIPE, "--json"))
    assert found["no_rank_idles"] == {"from": 23, "to": 40}
    assert found["whole"]["utilisation"] == "10/11"
    assert (found["steady"]["from"], found["steady"]["to"], found["steady"]["utilisation"]) == (3, 66, "13/14")
    assert len(found["steady"]["per_rank"]) == 8
    assert "no rank idles  from 23 to 40" in result("show", *DUALPIPE)


def test_show_a_stretch_of_time():
    assert "F0 " not in result("show", "1f1b", "-P", 2, "-M", 8, "--from", 6, "--to", "25/2")


def test_show_of_an_order_that_hangs(tmp_path):
    path = tmp_path / "hang.csv"
    path.write_text("0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n")
    assert "?F1" in result("show", path, code=1)
    assert json.loads(result("show", path, "--json", code=1))["makespan"] is None


@pytest.mark.parametrize(
    ("words", "makespan"),
    [
        ("gpipe -P 4 -M 8", 33),
        ("1f1b -P 8 -M 1", 24),
        ("zb1p -P 4 -M 8", 27),
        ("zbv -P 4 -M 2", 22),
        ("interleaved -P 4 -M 8 --stages-per-rank 2", 57),
        ("interleaved -P 4 -M 8 --rule megatron", 57),
        ("chimera -P 4 -M 4", 16),
        ("dualpipev -P 3 -M 7", 46),
    ],
)
def test_makespans(words, makespan):
    assert json.loads(result("show", *words.split(), "--json"))["makespan"] == makespan


def test_compare_on_equal_terms():
    found = json.loads(result("compare", "dualpipe", "dualpipev", "1f1b", "-P", 8, "-M", 20, "--json"))
    assert found["per"] == "model"
    rows = found["schedules"]
    assert [row["makespan"] for row in rows] == [66, 67, 81]
    assert [row["idle_worst"] for row in rows] == [6, 7, 21]
    assert [row["weights"][0] for row in rows] == ["1/4", "1/8", "1/8"]


def test_compare_per_stage():
    rows = json.loads(result("compare", "dualpipev", "-P", 4, "-M", 10, "--per", "stage", "--json"))["schedules"]
    assert (rows[0]["makespan"], rows[0]["weights"]) == (66, [2, 2, 2, 2])


def test_compare_keeps_the_rows_that_it_can_have():
    words = ("compare", "chimera", "1f1b", TABLE, "interleaved", "-P", 4, "-M", 9, "--stages-per-rank", 3)
    found = json.loads(result(*words, "--json", code=1))["schedules"]
    assert "multiple of P" in found[0]["refused"]
    assert found[1]["makespan"] == 36
    assert "refuted: micro-batch 8 of 9 missing" in found[2]["refused"]
    assert "chimera: M = 9 micro-batches" in result(*words, code=1)
    assert "multiple of P" in complaint("compare", "chimera", "-P", 4, "-M", 9)
    assert run("compare", "chimera", "-P", 4, "-M", 9, "--json").exit_code == 2


def test_export_is_read_back(tmp_path):
    for target, name in (("json", "x.json"), ("torch-csv", "x.csv")):
        path = tmp_path / name
        assert result("export", "dualpipev", "-P", 4, "-M", 10, "--to", target, "-o", path) == ""
        assert path.read_text() == result("export", "dualpipev", "-P", 4, "-M", 10, "--to", target)
        assert load(path).schedule == load(DATA / "torch" / "ScheduleDualPipeV_P4_M10.csv").schedule


def test_export_gives_torchs_own_table():
    table = DATA / "torch" / "ScheduleDualPipeV_P4_M10.csv"
    cells = [[cell for cell in line.split(",") if cell] for line in table.read_text().splitlines()]
    assert [line.split(",") for line in result("export", table, "--to", "torch-csv").splitlines()] == cells


def test_export_keeps_costs():
    written = json.loads(result("export", *DUALPIPE, "--to", "json", "--costs", "F=2"))
    assert written["costs"]["F"] == 2
    assert "limits" not in written


def test_export_draws_pictures_and_traces(tmp_path):
    trace = json.loads(result("export", *DUALPIPE, "--to", "trace", "--costs", "hop=1"))
    assert trace["otherData"]["costs"]["hop"] == 1
    assert "<title>dualpipe P=8 M=20</title>" in result("export", *DUALPIPE, "--to", "html")
    compared = result("export", "dualpipe", "zbv", "-P", 8, "-M", 20, "--to", "html", "--costs", "F=2")
    assert "<title>dualpipe P=8 M=20 | zbv P=8 M=20</title>" in compared
    assert "costs F=1,I=1/2,W=1/2,B=1,FB=2" in compared
    assert "there is one" in complaint("export", *DUALPIPE, "--to", "html", "--per", "stage")
    assert "trace: expected one SOURCE" in complaint("export", "1f1b", "zbv", "-P", 8, "-M", 20, "--to", "trace")
    pytest.importorskip("matplotlib")
    drawn = result("export", *DUALPIPE, "--to", "svg")
    assert "makespan 66" in drawn
    path = tmp_path / "x.pdf"
    assert result("export", *DUALPIPE, "--to", "pdf", "--theme", "dark", "--memory", "-o", path) == ""
    assert path.read_bytes().startswith(b"%PDF")
    assert "for pictures: svg, png, pdf" in complaint("export", *DUALPIPE, "--to", "json", "--memory")


# ---------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "Missing argument"),
        ("x y", "unexpected extra argument"),
        ("1f1b --actvations 3", "--actvations"),
        ("1f1b -P x -M 8", "not a valid integer"),
        (f"1f1b -P {'9' * 5000} -M 8", "not a valid integer"),
        ("1f1b -P 4", "a family needs its sizes, for example: 1f1b -P 8 -M 20"),
        ("1f1b -P 0 -M 8", "1f1b: 0 ranks; expected at least 1"),
        ("1f1b -P -4 -M 8", "1f1b: -4 ranks"),
        ("1f1b -P 1000000000 -M 8", "10000000 ops, the limit"),
        ("1f1b -P 4 -M 1000000000", "10000000 ops, the limit"),
        ("dualpipe -P 7 -M 20", "even P"),
        ("dualpip -P 8 -M 20", "unknown family 'dualpip'; did you mean 'dualpipe' or 'dualpipev'?"),
        ("dualpip", "did you mean"),
        ("1f1b -P 4 -M 8 --rule pytorch", "1f1b: this family takes no --rule"),
        ("1f1b -P 4 -M 8 --stages-per-rank 2", "1f1b: this family takes no --stages-per-rank"),
        ("1f1b -P 4 -M 8 --dialect legacy", "a family takes no --dialect"),
        ("absent.csv", "absent.csv: no such file or directory"),
        ("./absent", "no such file or directory"),
        ("absent.toml", "absent.toml: cannot be read: no such file or directory"),
        ("specs/1f1b-p4-m8.toml -P 4", "a spec takes no -P"),
        (f"{TABLE} -P 4", "a file takes no -P"),
        ("1f1b -P 4 -M 8 --costs F=-1", "costs.F: expected a number that is not negative, got -1"),
        ("1f1b -P 4 -M 8 --costs F=NaN", 'costs.F: expected a number such as 3, 2.5 or "5/2", got "NaN"'),
        ("1f1b -P 4 -M 8 --costs F=Infinity", "costs.F: expected a number"),
        ("1f1b -P 4 -M 8 --costs F=1e999999999", "costs.F: expected at most 18 digits"),
        ("1f1b -P 4 -M 8 --costs F=1/999999999999999989,I=1/999999999999999877", "common denominator"),
        ("1f1b -P 4 -M 8 --costs F=0,I=0,W=0", "every op takes no time"),
        ("1f1b -P 4 -M 8 --costs cls=3", "costs.cls: unknown key"),
        ("1f1b -P 4 -M 8 --costs banana", 'costs: expected F=1,I=1,W=1,FB=3,hop=0 or a TOML file, got "banana"'),
        ("1f1b -P 4 -M 8 --costs absent.toml", "absent.toml: cannot be read"),
        ("1f1b -P 4 -M 8 --costs F=[1,2]", "costs.F: expected 4 numbers, one per stage; got 2"),
        ("1f1b -P 4 -M 8 --activations -1", "limits.activations: expected a number that is not negative"),
        ("1f1b -P 4 -M 8 --activations 1,2", "limits.activations: expected one number or 4, one per rank; got 2"),
        ("1f1b -P 4 -M 8 --weights 1.5", "limits.weights: expected whole numbers"),
        ("1f1b -P 4 -M 8 --spec specs", "specs: cannot be read: is a directory"),
        ("1f1b -P 4 -M 8 --spec specs/dualpipe-p8-m20.toml", "a problem of 8 ranks; the schedule has 4"),
    ],
)
def test_wrong_use_is_one_line(words, message):
    assert message in complaint("verify", *words.split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (bytes(range(256)), "not UTF-8 text"),
        (b"{" * 100_000, "expected JSON"),
        (b"[" * 100_000, "a JSON list"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"format": "pipeline-schedule/1", "order": 3}', "expected"),
        (b"0F0,0B0\n2F0,2B0\n", "stage 1 is absent"),
        (b"hello\n", "begins with"),
        (b"x" * 5_000_000, "begins with"),
    ],
)
@pytest.mark.parametrize("command", ["verify", "show"])
def test_unreadable_files_are_one_line(tmp_path, command, content, message):
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    said = complaint(command, path)
    assert message in said
    assert len(said) < 1000


def test_directories_and_places_that_cannot_be_written(tmp_path):
    assert "is a directory" in complaint("verify", tmp_path)
    assert "is a directory" in complaint("export", "1f1b", "-P", 2, "-M", 2, "--to", "json", "-o", tmp_path)
    assert "cannot be written" in complaint("export", "1f1b", "-P", 2, "-M", 2, "--to", "json", "-o", tmp_path / "a" / "b")


def test_ids_with_a_hole_and_doubled_ops_are_refuted_with_a_witness(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("0F0,0B0,0F2,0B2\n1F0,1B0,1F2,1B2\n")
    assert "micro-batch 1 of 3 missing" in result("verify", path, "--solver", "replay", code=1)
    path.write_text("0F0,0F0,0B0\n1F0,1B0\n")
    assert "rank 0, cell 1: 0F0 runs a second time" in result("verify", path, "--solver", "replay", code=1)


def test_a_schedule_comes_from_standard_input():
    piped = CliRunner().invoke(main, ["verify", "-", "--solver", "replay"], input="0F0,0B0\n1F0,1B0\n")
    assert (piped.exit_code, piped.stdout.splitlines()[0]) == (0, "stdin: proved")
    written = result("export", *DUALPIPE, "--to", "json")
    shown = json.loads(CliRunner().invoke(main, ["show", "-", "--json"], input=written).stdout)
    assert shown["makespan"] == 66
    broken = CliRunner().invoke(main, ["verify", "-"], input="0F0,0b0\n")
    assert (broken.exit_code, broken.stderr) == (
        2,
        'standard input: rank 0, column 1: "0b0" is not a cell; did you mean 0B0?\n',
    )
    empty = CliRunner().invoke(main, ["verify", "-"], input="")
    assert (empty.exit_code, empty.stderr[:22]) == (2, "standard input: empty;")


def test_show_says_in_json_too_that_it_is_refuted(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
    found = json.loads(result("show", path, "--json", code=1))
    assert (found["status"], found["makespan"]) == ("refuted", None)
    assert list(found["properties"]) == ["dependencies"]
    assert "wait in a circle" in found["properties"]["dependencies"]["witness"][0]["text"]
    path.write_text("0F0,0F0,0B0\n1F0,1B0\n")
    assert list(json.loads(result("show", path, "--json"))["properties"]) == ["complete"]
    assert "status" not in json.loads(result("show", *DUALPIPE, "--json"))


def test_a_chain_of_two_copies_is_recognized_where_it_is_refuted(tmp_path):
    path = tmp_path / "x.csv"
    result("export", "dualpipe", "-P", 2, "-M", 4, "--to", "torch-comms-csv", "-o", path)
    hint = "note: read as two weight copies laid end to end (--copies 2) its order has a timeline"
    for command in ("verify", "show"):
        assert hint in result(command, path, code=1).splitlines()
    assert hint[6:] in json.loads(result("verify", path, "--json", code=1))["notes"]
    assert hint not in result("verify", path, "--copies", 2)
    # What hangs either way, and what has no second copy, gets no hint.
    for wrong in ("0F0,0B0\n1B0,1F0\n", "0F0,1F0,0B0,1B0\n"):
        path.write_text(wrong)
        assert "--copies" not in CliRunner().invoke(main, ["verify", str(path)]).stdout


def test_other_wrong_uses():
    assert "torch-csv: stage 0 lives on ranks 0 and 7" in complaint("export", *DUALPIPE, "--to", "torch-csv")
    assert "'csv' is not one of" in complaint("export", *DUALPIPE, "--to", "csv")
    assert "No such command 'verfy'" in complaint("verfy")
    assert "--from: expected a number" in complaint("show", *DUALPIPE, "--from", "soon")
    assert "--per" in complaint("compare", "1f1b", "--per", "rank")


def test_a_spec_without_a_schedule_is_no_source(tmp_path):
    spec = tmp_path / "x.toml"
    spec.write_text('[problem]\nplacement = "v"\nranks = 2\nmicrobatches = 2\n')
    assert "expected a table [schedule]" in complaint("show", spec)


def test_contradictions_of_our_own_are_never_caught(monkeypatch):
    from verifier import verify

    def contradict(*_args, **_kwargs):
        raise verify.DisagreementError("replay says this, Z3 says that")

    monkeypatch.setattr(verify, "_agree", contradict)
    assert isinstance(run("verify", *DUALPIPE, "--solver", "replay").exception, verify.DisagreementError)


def test_an_interrupt_ends_with_130(monkeypatch):
    def interrupt(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("verifier.sources.open_source", interrupt)
    ended = run("verify", *DUALPIPE)
    assert (ended.exit_code, ended.stdout, ended.stderr.strip()) == (130, "", "")


# --------------------------------------------------------------------------------------------------------------- processes


def process(*words, **options):
    environment = {**os.environ, "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, "-m", "verifier", *words], capture_output=True, env=environment, check=False, **options
    )


def test_as_a_module_without_colours_in_a_pipe():
    ended = process("show", *DUALPIPE)
    assert ended.returncode == 0
    assert ended.stderr == b""
    assert b"\x1b" not in ended.stdout
    assert b"rank 7   F0' F1'" in ended.stdout


def test_exit_codes_reach_the_shell():
    assert process("verify", W_BEFORE_I, "--solver", "replay").returncode == 1
    ended = process("verify", "absent.csv")
    assert (ended.returncode, ended.stdout, ended.stderr.count(b"\n")) == (2, b"", 1)


def test_a_reader_that_goes_away_is_no_error():
    words = [sys.executable, "-m", "verifier", "show", "dualpipe", "-P", "16", "-M", "64"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 141


def test_help_imports_nothing_heavy():
    code = "import sys; from verifier.cli import main\ntry: main(['--help'])\nexcept SystemExit: print(sorted(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ended.stdout.splitlines()[-1]
    for module in ("rich", "networkx", "z3", "jsonschema", "ortools", "tomllib", "verifier.families", "verifier.simulate"):
        assert f"'{module}'" not in loaded


def test_what_cannot_be_encoded_is_escaped(tmp_path):
    folder = tmp_path.as_posix().encode()
    path = os.fsdecode(folder + b"/\xff.csv")
    Path(path).write_text("0F0,0B0\n")
    ended = process("verify", path, "--solver", "replay")
    assert ended.returncode == 0, ended.stderr
    assert b"proved" in ended.stdout


# ------------------------------------------------------------------------------------------------------------- messages


def test_messages_are_judged_under_every_named_model():
    from verifier.messages import MODELS

    chosen = [word for model in MODELS for word in ("--messages", model)]
    written = json.loads(result("verify", "dualpipe", "-P", 4, "-M", 8, "--json", *chosen))
    assert written["properties"]["messages"]["status"] == "proved"
    assert list(written["properties"]["messages"]["models"]) == list(MODELS)
    assert "lowering" in written["properties"]["messages"]["reason"]


def test_the_messages_of_a_file_are_judged_as_they_stand():
    path = DATA / "cases/derived__P2V2_same_peer_reordered_recv.csv"
    written = json.loads(result("verify", path, "--json", "--messages", "tagged", "--messages", "ordered", code=1))
    models = written["properties"]["messages"]["models"]
    assert models["tagged"]["status"] == "proved"
    assert models["ordered"]["status"] == "refuted"
    assert "link 1->0, message 2: sent 1SEND_F1, expected 2RECV_B0" in models["ordered"]["witness"][1]["text"]
    assert models["ordered"]["witness"][1]["cell"] == 7


@pytest.mark.parametrize("path", sorted((DATA / "torch").glob("*.comms.csv")), ids=lambda path: path.name)
def test_torchs_default_lowering_is_clean(path):
    named = [word for model in ("ordered", "pair", "rank") for word in ("--messages", model)]
    models = json.loads(result("verify", path, "--json", "--solver", "replay", *named))["properties"]["messages"]["models"]
    assert {model: judged["status"] for model, judged in models.items()} == dict.fromkeys(("ordered", "pair", "rank"), "proved")


def test_two_copies_in_torchs_chain_are_read_back(tmp_path):
    path = tmp_path / "d.csv"
    result("export", "dualpipe", "-P", 4, "-M", 8, "--to", "torch-comms-csv", "-o", path)
    written = json.loads(result("verify", path, "--copies", 2, "--json", "--messages", "rank"))
    assert (written["status"], written["makespan"], written["microbatches"]) == ("proved", 26, 8)
    assert "dependencies" in result("verify", path, code=1)


def test_export_says_what_goes_with_the_file_and_prints_nothing_else(tmp_path):
    path = tmp_path / "zbv.csv"
    ended = run("export", "zbv", "-P", 2, "-M", 4, "--to", "torch-csv", "-o", path)
    assert ended.stdout == ""
    assert 'torchtitan: pipeline_parallel_schedule = "ZBVZeroBubble"' in ended.stderr
    assert 'pipeline_parallel_schedule_csv = "zbv.csv"' in ended.stderr
    assert run("export", "zbv", "-P", 2, "-M", 4, "--to", "json").stderr == ""


def test_a_program_is_exported_and_judged(tmp_path):
    for target in ("program", "program-batched"):
        path = tmp_path / f"{target}.json"
        result("export", "dualpipe", "-P", 4, "-M", 8, "--to", target, "-o", path)
        written = json.loads(result("verify", path, "--json", "--messages", "batched", "--messages", "rank"))
        assert (written["status"], written["schedule"]) == ("proved", "dualpipe P=4 M=8")
        assert "reason" not in written["properties"]["messages"]
    assert '["0SEND_F3", "3SEND_B1\'", "3RECV_F2\'", "0RECV_B0"]' in path.read_text()


def test_an_export_keeps_the_messages_of_its_source(tmp_path):
    table, program, again = DATA / "cases/derived__P2V2_same_peer_reordered_recv.csv", tmp_path / "p.json", tmp_path / "t.csv"
    result("export", table, "--to", "program", "--force", "-o", program)
    assert "link 1->0, message 2: sent 1SEND_F1, expected 2RECV_B0" in result("verify", program, "--messages", "rank", code=1)
    result("export", program, "--to", "torch-comms-csv", "--force", "-o", again)
    words = [word for word in again.read_text().replace("\n", ",").split(",") if "SHARD" not in word and "REDUCE" not in word]
    assert words == table.read_text().replace("\n", ",").split(",")
    assert "2REDUCE_GRAD" in again.read_text()


def test_an_export_that_its_target_could_not_run_is_refused(tmp_path):
    path = tmp_path / "late.csv"
    path.write_text("0F1,0F0,0B0,0B1\n")
    for target in ("torch-csv", "torch-comms-csv"):
        assert "torch: 0F1 runs where torch takes the loss of micro-batch 0" in complaint("export", path, "--to", target)
    assert "dualpipe: expected stage s of direction 0 on rank s" in complaint(
        "export", "zbv", "-P", 2, "-M", 4, "--to", "dualpipe-table"
    )


def test_an_export_is_extended_where_its_bubble_is_constant(tmp_path):
    path = tmp_path / "longer.json"
    assert result("export", TABLE, "--extend-to", 24, "--to", "json", "-o", path) == ""
    short, long = (json.loads(result("verify", file, "--json", "--solver", "replay")) for file in (TABLE, path))
    assert (long["status"], long["microbatches"], long["idle"]) == ("proved", 24, short["idle"])
    written = result("export", "dualpipe", "-P", 4, "-M", 8, "--extend-to", 40, "--to", "torch-comms-csv")
    assert written == result("export", "dualpipe", "-P", 4, "-M", 40, "--to", "torch-comms-csv")


def test_an_extension_that_is_not_proved_is_refused(tmp_path):
    export = ("export", "1f1b", "-P", 4, "-M", 8, "--to", "json")
    assert "adds 3/2 to the idle time of rank 0" in complaint(*export, "--extend-to", 16, "--costs", "F=10,I=10,W=10,hop=1")
    assert "expected 8 or 1, 2, ... more" in complaint(*export, "--extend-to", 7)
    assert "the limit" in complaint(*export, "--extend-to", 10**15)
    assert "export --extend-to N --to json first" in complaint(*export[:-1], "html", "--extend-to", 16)


def test_an_extension_leaves_the_messages_of_its_source_out(tmp_path):
    path = tmp_path / "program.json"
    result("export", "1f1b", "-P", 2, "-M", 6, "--to", "program", "-o", path)
    ended = run("export", path, "--extend-to", 9, "--to", "program")
    assert ended.stderr.startswith("the source's messages are for its own micro-batches")
    assert "0SEND_F8" in ended.stdout


def test_a_file_with_messages_is_never_judged_without_them(tmp_path):
    text = (DATA / "cases/derived__P2V2_same_peer_reordered_recv.csv").read_text()
    path = tmp_path / "m.csv"
    path.write_text(text.replace(",0RECV_B1,", ","))
    assert "put 0RECV_B1 before it" in result("verify", path, code=1)
    assert "judged under ordered alone" in result("verify", DATA / "torch/ScheduleDualPipeV_P2_M4.comms.csv")


def test_names_of_torch_and_papers_are_understood():
    for written, meant in (("1F1B", "1f1b"), ("ZB-H1", "zb1p"), ("ScheduleZBVZeroBubble", "zbv"), ("DualPipeV", "dualpipev")):
        assert f"did you mean '{meant}'" in complaint("verify", written, "-P", 4, "-M", 8)


def test_microbatches_must_agree_with_the_spec(tmp_path):
    spec = tmp_path / "p.toml"
    spec.write_text("[problem]\nplacement = [[0, 1]]\nranks = 2\nmicrobatches = 2\n")
    table = tmp_path / "ok.csv"
    table.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    result("verify", table, "--spec", spec, "-M", 2)
    assert "says 2 micro-batches" in complaint("verify", table, "--spec", spec, "-M", 99)


def test_a_comparison_with_a_row_missing_is_no_success():
    assert "1f1b" in result("compare", "1f1b", "dualpipe", "-P", 3, "-M", 4, code=1)


def test_names_cannot_command_the_terminal(tmp_path):
    path = tmp_path / "s.json"
    written = {"format": "pipeline-schedule/1", "name": "a\x1b[31m\nb", "ranks": 1, "placement": [[0]], "microbatches": [1]}
    path.write_text(json.dumps({**written, "order": [["0F0", "0B0"]]}))
    assert "\x1b" not in result("verify", path) + result("show", path) + result("compare", path)


def test_a_closed_output_is_no_crash():
    command = [sys.executable, "-m", "verifier", "verify", "1f1b", "-P", "2", "-M", "2"]
    ended = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_is_refuted_is_written_for_a_runtime_only_by_force(tmp_path):
    path = tmp_path / "x.csv"
    for target in ("torch-csv", "torch-comms-csv", "program"):
        ended = run("export", W_BEFORE_I, "--to", target, "-o", path)
        assert (ended.exit_code, ended.stderr.count("\n"), path.exists()) == (1, 1, False)
        assert ended.stderr.startswith("refuted: rank 0, cell 8: 7W0 needs 7I0")
    assert run("export", W_BEFORE_I, "--to", "torch-csv", "--force", "-o", path).exit_code == 0
    assert path.exists()
    assert json.loads(result("export", W_BEFORE_I, "--to", "json"))["ranks"] == 4
