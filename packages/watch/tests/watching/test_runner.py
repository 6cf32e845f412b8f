"""The runner, end to end: what grows is named, and the program does not notice."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import MAIN, Watched, environment

from flatwater_watch.agent.growth import Sample, append_sample_
from flatwater_watch.agent.spool import unwatched_summary
from flatwater_watch.agent.summary import build_summary
from flatwater_watch.errors import ConfigError
from flatwater_watch.faces.command import json_text
from flatwater_watch.faces.main import main
from flatwater_watch.faces.runner import python_command
from flatwater_watch.series.readings import Reading

LEAK = """
import os, signal, sys, time

KEPT = []

def make():
    return bytearray(1 << 20)

def main(how):
    for _ in range(int(os.environ.get("ROUNDS", "20"))):
        KEPT.append(make())
        time.sleep(0.05)
    if how == "exit":
        os._exit(5)
    if how == "code":
        sys.exit(7)
    if how == "raise":
        raise ValueError("the program's own")
    if how == "fork":
        child = os.fork()
        if child == 0:
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    if how.isdigit():
        os.kill(os.getpid(), int(how))

main(sys.argv[1])
"""

EPISODES = LEAK.replace("import os,", "import gym.core, os,").replace(
    "time.sleep", "gym.core.Round().reset(); time.sleep"
)
"""The same, with an episode at each item: bytes by episode are exact on any machine, and bytes by second are not."""
GYM = """
class Env:
    pass

class Round(Env):
    def reset(self):
        pass
"""

QUIET = """
import sys, os, json
print(json.dumps([sys.argv, sys.path[0], __name__, __file__, os.environ.get("PYTHONPATH")]))
print([name for name in os.environ if "FLATWATER" in name])
print(len([entry for entry in sys.path if "inject" in entry]))
sys.stdout.buffer.write(bytes(range(256)).replace(b"\\r", b""))
sys.stderr.write("warning\\n")
sys.exit(7)
"""


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("none", 0),
        ("exit", 5),
        pytest.param("code", 7, marks=pytest.mark.slow),
        ("raise", 1),
        pytest.param("fork", 0, marks=pytest.mark.slow),
        (str(int(signal.SIGTERM)), 143),
        (str(int(signal.SIGKILL)), 137),
    ],
)
def test_a_leak_is_named_however_the_program_ends(run_watched: Watched, tmp_path: Path, how: str, code: int) -> None:
    (tmp_path / "gym").mkdir()
    (tmp_path / "gym" / "core.py").write_text(GYM)
    ran = run_watched(EPISODES, how)
    assert ran.code == code, ran.stderr
    found = ran.summary["findings"][0]
    assert (found["verdict"], found["owner"]) == ("leak", "train.KEPT")
    assert (found["made_at"]["line"], found["made_at"]["function"]) == (7, "make")
    assert (found["unit"], found["bytes_per_step"]) == ("episode", pytest.approx((1 << 20) + 57, abs=64))
    # What dies at once leaves what it knew when the finding was new, two seconds ago or less.
    assert ran.summary["explained_share"] >= (0.5 if how in {"exit", "9"} else 0.9)
    assert ran.summary["exit_code"] == code
    assert "train.KEPT grows by" in ran.stderr
    told = ran.stderr[ran.stderr.index("flatwater:") :].replace(str(tmp_path), "")  # as long as pytest has made it
    assert all(len(line) <= 100 for line in told.splitlines())
    assert ("the program's own" in ran.stderr) == (how == "raise")
    assert ran.stdout == ("3\n" if how == "fork" else "")


def test_output_arguments_and_environment_are_those_of_an_unwatched_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(QUIET)
    words = [sys.executable, str(script), "--lr", "3e-4", "--", "-x"]
    plain = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False, env=environment())
    line = [sys.executable, "-c", MAIN, "run", "--", *words]
    ran = subprocess.run(line, cwd=tmp_path, capture_output=True, check=False, env=environment())
    assert (ran.returncode, ran.stdout) == (plain.returncode, plain.stdout)
    assert ran.stderr.startswith(plain.stderr)


def test_a_module_and_a_bare_script_are_run_by_this_python(run_watched: Watched) -> None:
    source = "import sys; print(__name__, sys.argv[1:], sys.executable)"
    expected = f"__main__ ['a'] {sys.executable}\n"
    assert run_watched(source, "a", command=("-m", "train")).stdout == expected
    assert run_watched(source, "a", command=("train.py",)).stdout == expected


def test_a_flat_program_has_no_findings(run_watched: Watched) -> None:
    ran = run_watched(
        """
        import time
        held = [bytearray(1 << 20) for _ in range(30)]
        for turn in range(150):
            held[turn % 30] = bytearray(1 << 20)
            time.sleep(0.01)
        """
    )
    assert (ran.code, ran.summary["findings"]) == (0, [])
    assert ran.summary["readings"] >= 10
    assert "nothing grows" in ran.stderr


def test_the_last_reading_comes_before_callbacks_of_atexit(run_watched: Watched) -> None:
    """They empty what a program kept, as pyplot closes its figures, or make what no loop of it made."""
    ran = run_watched(
        """
        import atexit, time
        for _ in range(40):
            time.sleep(0.01)
        late = []
        atexit.register(lambda: late.append(b"1" * 200_000_000))
        """
    )
    assert ran.code == 0, ran.stderr
    assert ran.summary["resident_growth_bytes"] < 100_000_000


def test_what_is_loaded_once_is_no_leak(run_watched: Watched) -> None:
    ran = run_watched(
        """
        import time
        table = []
        for _ in range(20):
            table.append(bytearray(1 << 20))
            time.sleep(0.04)
        for _ in range(60):
            time.sleep(0.03)
        """
    )
    assert ran.summary["findings"] == []


@pytest.mark.long
def test_growth_is_told_by_optimizer_steps(run_watched: Watched) -> None:
    pytest.importorskip("torch")
    ran = run_watched(
        """
        import time
        import torch
        torch.set_num_threads(1)

        def main():
            net = torch.nn.Linear(64, 64)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            losses = []
            for _ in range(600):
                loss = net(torch.ones(512, 64)).square().mean()
                optimizer.zero_grad()
                loss.backward(retain_graph=True)
                optimizer.step()
                losses.append(loss)
                time.sleep(0.005)  # the line is traced in a few of the readings, and those are a share of the time

        main()
        """
    )
    found = ran.summary["findings"][0]
    assert (ran.summary["unit"], ran.summary["steps"]) == ("update", 600)
    assert (found["verdict"], found["owner"], found["made_at"]["line"]) == ("leak", "main() in train.py: losses", 11)
    assert found["bytes_per_step"] == pytest.approx(3 * 512 * 64 * 4 / 1.5, rel=0.6)
    assert "item()" in found["advice"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("needs", "launcher"),
    [
        ("torch", ("torch.distributed.run", "--nproc-per-node", "2")),
        ("accelerate", ("accelerate.commands.launch", "--cpu", "--num_processes", "1")),
    ],
)
def test_what_a_launcher_starts_is_watched(run_watched: Watched, needs: str, launcher: tuple[str, ...]) -> None:
    pytest.importorskip(needs)
    program = Path(__file__).parents[1] / "zoo" / "growing" / "kept_losses.py"
    ran = run_watched("", str(program), "12", command=(sys.executable, "-m", *launcher))
    assert ran.code == 0, ran.stderr
    found = ran.summary["findings"][0]
    assert (found["verdict"], found["owner"]) == ("leak", "main() in kept_losses.py: history")
    assert (ran.summary["unit"], ran.summary["steps"]) == ("update", 48)


def test_two_runs_are_compared_by_fingerprint(run_watched: Watched) -> None:
    run_watched(LEAK, "none")
    again = run_watched(LEAK, "none", options=("--against", "last"))
    assert f"still {again.summary['findings'][0]['fingerprint']}" in again.stderr
    other = run_watched(LEAK.replace("KEPT", "HELD"), "none", options=("--against", "out.json"))
    assert "new " in other.stderr
    assert "gone" in other.stderr


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["BaseException", "Exception"])
def test_what_a_signal_handler_raises_is_never_lost(kind: str, tmp_path: Path) -> None:
    """Handlers run wherever the main thread is, in the watch's readings too: Ctrl-C must stop a program there."""
    (tmp_path / "train.py").write_text(
        """
import signal, sys, time

class Stop(KIND):
    def __init__(self, number):
        self.number = number

armed, raised, caught = False, 0, []
def stop(*_):
    global armed, raised
    if armed:
        armed, raised = False, raised + 1
        raise Stop(raised)

signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
end = time.monotonic() + 3

def work():  # in a function: Python 3.13 has no handler of a `try` at the jump that ends a loop in it
    while time.monotonic() < end + 5:
        sum(range(50))

while time.monotonic() < end:
    try:
        armed = True
        work()
    except Stop as found:
        caught.append(found.number)
signal.setitimer(signal.ITIMER_REAL, 0)
assert caught == list(range(1, raised + 1)), (raised, len(caught))
print(raised > 100)
""".replace("KIND", kind)
    )
    ran = subprocess.run(
        [sys.executable, "-c", MAIN, "run", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=300,
    )
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_program(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    (tmp_path / "train.py").write_text(
        f"""
import pathlib, signal, sys, time
def told(*_):
    print("told", flush=True)
    sys.exit(9)
signal.signal({int(number)}, told)
pathlib.Path({str(ready)!r}).touch()
time.sleep(30)
"""
    )
    line = [sys.executable, "-c", MAIN, "run", "train.py"]
    with subprocess.Popen(
        line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
    ) as ran:
        deadline = time.monotonic() + 240
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(ran.pid, number)
        out, _ = ran.communicate(timeout=300)
    assert (ran.returncode, out) == (9, b"told\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing to run"),
        (["nowhere.py"], "no script 'nowhere.py'"),
        (["python", "nowhere.py"], "no script 'nowhere.py'"),
        (["python", "-u", "-W", "error", "nowhere.py"], "no script 'nowhere.py'"),
        (["no-such-command"], "no command 'no-such-command'"),
    ],
)
def test_what_does_not_exist_is_told_before_anything_runs(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        python_command(words)


def test_a_file_of_json_with_another_ending_is_not_taken_for_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('ran')")
    for words in (["told.txt", "train.py"], ["told.txt", "--", "python", "train.py"], ["no/told", "train.py"]):
        assert main(["run", "--json", *words]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert re.search(rf"--json {re.escape(words[0])}: .*\.json, .*no command", said)
    for words in (["told.txt"], ["--json", "--", "told.txt"], ["--json", "--every", "10m", "told.txt"]):
        assert main(["run", *words]) == 2
        assert "no command 'told.txt'" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("command", [("train.py",), ("-m", "train"), ("python", "train.py")])
def test_a_command_stands_after_json_without_a_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('ran')")
    assert main(["run", "--json", *command]) == 0
    assert capfd.readouterr().out.startswith("ran\n{")


def test_no_script_and_no_earlier_result_exit_with_two(run_watched: Watched) -> None:
    assert run_watched("", command=("nowhere.py",)).code == 2
    ran = run_watched("", options=("--against", "last"))
    assert (ran.code, "without --against" in ran.stderr) == (2, True)


def test_a_process_that_is_not_python_is_said_not_to_be_seen(run_watched: Watched) -> None:
    ran = run_watched("", command=("sh", "-c", "exit 4"))
    assert (ran.code, ran.summary["findings"]) == (4, [])
    assert "no Python program was seen" in ran.stderr


def test_a_shell_that_starts_python_is_seen_through(run_watched: Watched) -> None:
    ran = run_watched(LEAK, command=("sh", "-c", f"{sys.executable} train.py none; exit 6"))
    assert ran.code == 6
    assert ran.summary["findings"][0]["owner"] == "train.KEPT"


def test_the_users_own_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys\nsys.customized = True\n")
    (tmp_path / "train.py").write_text("import sys, sitecustomize\nprint(sys.customized, sitecustomize.__file__)\n")
    path = os.pathsep.join((str(tmp_path / "own"), environment()["PYTHONPATH"]))
    line = [sys.executable, "-c", MAIN, "run", "train.py"]
    ran = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment(PYTHONPATH=path)
    )
    assert ran.stdout == f"True {tmp_path / 'own' / 'sitecustomize.py'}\n"


def test_the_watch_needs_neither_torch_nor_numpy(run_watched: Watched) -> None:
    """In the program's process nothing is imported but the standard library and flatwater's memory tools."""
    ran = run_watched(
        """
        import sys, time
        for _ in range(30):
            time.sleep(0.02)
        tops = {name.partition(".")[0] for name in sys.modules if not name.startswith("_")}
        tops = {top for top in tops - set(sys.stdlib_module_names) if "site" not in top and "virtualenv" not in top}
        print(sorted(tops))
        """
    )
    assert ran.summary["readings"] > 3
    assert set(json.loads(ran.stdout.replace("'", '"'))) <= {"flatwater_watch"}


def test_a_running_process_is_looked_at_from_outside(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LEAK)
    with subprocess.Popen(
        [sys.executable, "train.py", "none"], cwd=tmp_path, env=environment(ROUNDS="4000")
    ) as program:
        line = [
            sys.executable,
            "-c",
            MAIN,
            "run",
            "--attach",
            str(program.pid),
            "--outside",
            "--seconds",
            "4",  # on a busy machine the program may begin to grow after two
            "--json",
        ]
        ran = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment())
        program.kill()
    summary = json.loads(ran.stdout)
    assert [(found["verdict"], found["owner"]) for found in summary["findings"]] == [("native", "anonymous memory")]
    assert 0 < summary["findings"][0]["bytes_per_step"] <= 1.2 * (1 << 20) / 0.05
    assert "flatwater watch -- COMMAND" in summary["findings"][0]["advice"]
    assert any("only totals" in sentence for sentence in summary["unseen"])


def test_ctrl_c_ends_a_look_from_outside_early_and_tells_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LEAK)
    with subprocess.Popen(
        [sys.executable, "train.py", "none"], cwd=tmp_path, env=environment(ROUNDS="40000")
    ) as program:
        line = [
            sys.executable,
            "-c",
            MAIN,
            "run",
            "--attach",
            str(program.pid),
            "--outside",
            "--seconds",
            "600",
            "--json",
        ]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(line, cwd=tmp_path, env=environment(), **pipes) as looking:  # type: ignore[call-overload]
            time.sleep(5)
            looking.send_signal(signal.SIGINT)
            out, err = looking.communicate(timeout=200)
        program.kill()
    assert looking.returncode == 0, err
    assert 1 <= json.loads(out)["readings"] < 400


def test_a_traceback_is_that_of_an_unwatched_run(tmp_path: Path, run_watched: Watched) -> None:
    failing = """
        def outer():
            inner()

        def inner():
            raise ValueError("the program's own")

        outer()
        """
    ran = run_watched(failing)
    plain = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (plain.returncode, "ValueError" in plain.stderr) == (1, True)
    assert (ran.code, ran.stderr.startswith(plain.stderr)) == (1, True)


def test_a_program_whose_torch_cannot_be_imported_is_watched(run_watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object')\n")
    importing = "try:\n    import torch\nexcept ImportError as error:\n    print(error)\n"
    ran = run_watched(importing + LEAK, "none")
    assert (ran.code, ran.stdout) == (0, "libcudart.so.12: cannot open shared object\n")
    assert ran.summary["findings"][0]["owner"] == "train.KEPT"


@pytest.mark.parametrize("waits", ["thread.join()", "pass"], ids=["for its thread", "at its end"])
def test_a_main_thread_that_waits_for_another_is_watched(run_watched: Watched, waits: str) -> None:
    """It runs no instruction meanwhile, between which it could be read."""
    ran = run_watched(f"""
        import threading, time
        KEPT = []

        def work():
            for _ in range(80):
                KEPT.append(bytearray(1 << 20))
                time.sleep(0.05)

        thread = threading.Thread(target=work)
        thread.start()
        {waits}
    """)
    assert ran.code == 0, ran.stderr
    (found,) = ran.summary["findings"]
    assert (found["verdict"], found["owner"], found["made_at"]["line"]) == ("leak", "train.KEPT", 7)


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_output_of_many_threads_comes_through_byte_for_byte(run_watched: Watched, tmp_path: Path, count: int) -> None:
    ran = run_watched(
        """
        import os, sys, threading
        threading.stack_size(1 << 16)
        together = threading.Event()

        def work(number):
            together.wait()
            for line in range(10):
                os.write(1, f"{number} says {line} {'x' * (number % 50)}\\n".encode())

        threads = [threading.Thread(target=work, args=(number,)) for number in range(int(sys.argv[1]))]
        for thread in threads:
            thread.start()
        together.set()
        for thread in threads:
            thread.join()
        """,
        str(count),
    )
    plain = subprocess.run(
        [sys.executable, "train.py", str(count)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.code == 0, ran.stderr
    assert len(plain.stdout.splitlines()) == 10 * count
    assert sorted(ran.stdout.splitlines()) == sorted(plain.stdout.splitlines())


def test_code_without_file_names_is_said_to_be_told_by_its_own_names(run_watched: Watched) -> None:
    source = """
import time
kept = []
def fill():
    for _ in range(20):
        kept.append(bytearray(1 << 20))
        time.sleep(0.05)
fill()
"""
    ran = run_watched(f"exec(compile({source!r}, '', 'exec'))")
    (found,) = ran.summary["findings"]
    assert (ran.code, found["verdict"], found["owner"]) == (0, "leak", "train.kept")
    assert any(re.fullmatch("functions without a file name .*: fill", said) for said in ran.summary["unseen"])
    assert "not seen: functions without a file name" in ran.stderr


def test_frozen_modules_are_said_not_to_be_looked_at(run_watched: Watched) -> None:
    ran = run_watched(
        """
        import importlib.machinery, importlib.util, sys
        for name in ("model", "model.critic"):
            spec = importlib.machinery.ModuleSpec(name, importlib.machinery.FrozenImporter, origin="frozen")
            sys.modules[name] = importlib.util.module_from_spec(spec)
        """
    )
    assert ran.code == 0
    assert any(re.fullmatch(r"frozen modules .*: model, model\.critic", said) for said in ran.summary["unseen"])


def test_a_python_without_frames_is_said_not_to_be_watched(run_watched: Watched) -> None:
    ran = run_watched("import sys, time\ndel sys._getframe, sys._current_frames\ntime.sleep(0.5)\nprint('done')")
    assert (ran.code, ran.stdout) == (0, "done\n")
    assert any("the watch failed: AttributeError" in sentence for sentence in ran.summary["unseen"])
    assert not ran.stderr.startswith("Exception ignored")


def test_no_fork_is_made_while_the_program_holds_the_lock_that_comes_before_each(run_watched: Watched) -> None:
    """What waits for a collection is looked for in a fork, which would wait for ever."""
    ran = run_watched(
        """
        import gc, time
        from concurrent.futures import thread
        gc.disable()

        class Cycle:
            def __init__(self):
                self.me, self.data = self, bytearray(1 << 20)

        for turn in range(40):
            with thread._global_shutdown_lock:
                Cycle()
                time.sleep(0.05)
        print("done")
        """
    )
    assert (ran.code, ran.stdout) == (0, "done\n")


def test_a_tick_keeps_no_frame_of_the_program(run_watched: Watched) -> None:
    """A frame that is kept keeps what was in its variables: the zoo's figures took 100 MiB more for it."""
    ran = run_watched(
        """
        import gc, time, weakref
        gc.disable()

        class Held:
            pass

        def work():
            held, end = Held(), time.monotonic() + 0.1
            while time.monotonic() < end:
                pass
            return weakref.ref(held)

        kept = [work() for _ in range(10)]
        print(sum(each() is not None for each in kept))
        """
    )
    assert (ran.code, ran.stdout) == (0, "0\n")


def test_a_tick_that_comes_after_the_end_does_nothing(run_watched: Watched) -> None:
    ran = run_watched(
        """
        import time

        class Last:
            def __del__(self, sleep=time.sleep):  # called between the end of the watch and that of the interpreter
                for _ in range(30):
                    sleep(0.01)

        kept = Last()
        time.sleep(0.3)
        """
    )
    assert ran.code == 0
    assert "Exception ignored" not in ran.stderr


def test_the_readings_are_told_as_columns_that_say_the_same_as_the_totals(run_watched: Watched) -> None:
    told = run_watched(LEAK, "none").summary
    series = told["series"]
    assert {len(column) for column in series.values()} == {told["readings"]}
    assert series["seconds"] == sorted(series["seconds"])
    assert series["steps"][-1] <= told["steps"]
    resident = series["resident_bytes"]
    assert resident[-1] - resident[len(resident) // 5] == told["resident_growth_bytes"] > 4 << 20
    assert all(
        0 < files < whole and 0 <= free < whole
        for whole, files, free in zip(resident, series["file_bytes"], series["freed_bytes"], strict=True)
    )


def test_a_result_has_a_line_for_each_fact_and_is_the_same_json() -> None:
    series = {"seconds": [0.5, 1.0], "freed_bytes": [None, 2], "steps": []}
    told = unwatched_summary("train.py [\n1\n]", "") | {"series": series}
    text = json_text(told)
    assert json.loads(text) == told
    assert '  "seconds": [0.5, 1.0],\n  "freed_bytes": [null, 2],\n' in text
    assert len(text.splitlines()) == 32


def test_a_long_program_is_told_in_no_more_than_200_readings() -> None:
    rows: list[Sample] = []
    for step in range(1, 1001):
        reading = Reading(step, (100 + step) << 20, 7, in_use=1, free=step, owned={}, planned={}, limit=None, rates={})
        append_sample_(rows, Sample(0.5 * step, {"update": step}, reading, watch_overhead_bytes=3))
    series = build_summary(rows, [], unit="update", counts={"update": 1000}, unread={}, seconds=500.0)["series"]
    assert {len(column) for column in series.values()} == {len(rows)}
    assert len(rows) <= 200
    assert series["steps"][-1] == 1000
    for seconds, step, resident, files, freed in zip(*series.values(), strict=True):
        assert (seconds, resident, files, freed) == (0.5 * step, ((100 + step) << 20) - 3, 7, step)


@pytest.mark.parametrize(("how", "code", "end"), [("none", 0, "ended"), ("9", 137, "killed by SIGKILL")])
def test_the_page_is_written_however_the_program_ends(
    run_watched: Watched, tmp_path: Path, how: str, code: int, end: str
) -> None:
    pytest.importorskip("plotly")
    ran = run_watched(LEAK, how, options=("--html", "watch.html"))
    assert ran.code == code, ran.stderr
    page = (tmp_path / "watch.html").read_text()
    assert f">{end}" in page
    assert "train.KEPT grows by" in page
    assert "out.json, watch.html" in ran.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--html", "nowhere/watch.html"), "--html nowhere/watch.html: no file"),
        (("--html", "."), r"--html \.: .*end in \.html"),
        (("--html", "told.pdf"), r"--html told\.pdf: .*end in \.html"),
        (("--json", "nowhere/watch.json"), "--json nowhere/watch.json: no file"),
        (("--html",), "--html"),
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_the_program_starts(
    run_watched: Watched, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    ran = run_watched("open('ran', 'w')", options=options)
    assert re.search(says, ran.stderr)
    assert (ran.code, (tmp_path / "ran").exists()) == (2, False)
    assert "Traceback" not in ran.stderr


def test_a_page_without_plotly_is_refused_before_the_program_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    (tmp_path / "train.py").write_text("open('ran', 'w')")
    assert main(["run", "--html", "watch.html", "--", "train.py"]) == 2
    assert "pip install 'flatwater-watch[page]'" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_page_that_cannot_be_written_at_the_end_leaves_the_program_its_exit_code(run_watched: Watched) -> None:
    pytest.importorskip("plotly")
    ran = run_watched("import os, sys\nos.mkdir('watch.html')\nsys.exit(7)", options=("--html", "watch.html"))
    assert ran.code == 7
    assert re.search(r"\.flatwater/watch\.html \(watch\.html .*a folder", " ".join(ran.stderr.split()))
    assert "Traceback" not in ran.stderr


STARTS = """
import atexit, sys, time, types

def load(number):
    if LOADS:
        module = sys.modules[f"starting_{number}"] = types.ModuleType(f"starting_{number}")
    atexit.register(print, bytearray(500_000), end="")

for number in range(80):
    load(number)
    time.sleep(0.02)
atexit._clear()
"""


@pytest.mark.slow
@pytest.mark.parametrize("loads", [True, False])
def test_what_libraries_register_while_they_are_loaded_is_no_leak(run_watched: Watched, *, loads: bool) -> None:
    ran = run_watched(STARTS.replace("LOADS", str(loads)))
    assert ("atexit's callbacks" in [found["owner"] for found in ran.summary["findings"]]) != loads


IMPORTS = """
import sys, time

KEPT = []

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "large":
            return None
        began = time.process_time()
        made = [[[number] for number in range(300)] for _ in range(ROUNDS)]
        print(time.process_time() - began)

def leak():
    for _ in range(ROUND):
        KEPT.append([[number] for number in range(20_000)])
        time.sleep(0.02)

leak()
sys.meta_path.append(Finder)
try:
    import large
except ImportError:
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("steps", [10, 20, 30, 40, 50])
def test_an_import_is_not_traced_for_long(run_watched: Watched, steps: int) -> None:
    """An investigation may be under way when it begins: here at one of five of its moments."""
    alone = run_watched(IMPORTS.replace("ROUNDS", "3000").replace("ROUND", "0"))
    traced = run_watched(IMPORTS.replace("ROUNDS", "3000").replace("ROUND", str(steps)))
    assert float(traced.stdout) < 6 * float(alone.stdout) + 0.5
