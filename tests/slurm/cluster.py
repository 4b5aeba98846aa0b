"""A Slurm cluster of one node with two cards that are none, for the length of a `with` block."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")

CONF = """\
ClusterName=fglbench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
MinJobAge=300
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=64000 Gres=gpu:2 State=UNKNOWN
PartitionName=plain Nodes={host} Default=YES MaxTime=INFINITE State=UP
PartitionName=cards Nodes={host} MaxTime=INFINITE State=UP
"""

# Slurm opens no card: any two device files will do.
GRES = """\
Name=gpu File=/dev/null
Name=gpu File=/dev/zero
"""

# What was asked of sbatch, one call a file: Snakemake may submit several jobs at once.
SBATCH = """\
#!/bin/sh
printf '%s ' "$@" > {calls}/$(date +%s%N)-$$
exec {sbatch} "$@"
"""

# The plugin runs srun without any of Slurm's variables; a cluster has its slurm.conf where srun looks by itself.
SRUN = """\
#!/bin/sh
SLURM_CONF={folder}/slurm.conf exec {srun} "$@"
"""


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        environment: variables that point Slurm's commands to it.
        submitted: a folder with a file for every call of sbatch, in the order of their names.
    """

    environment: dict[str, str]
    submitted: Path

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def calls(self) -> list[str]:
        """The options of every job submitted so far, without its command."""
        texts = [path.read_text() for path in sorted(self.submitted.iterdir())]
        return [" ".join(text.split("--wrap=")[0].splitlines()) for text in texts]


def why_not() -> str | None:
    """Why no cluster can be started on this machine, or None."""
    missing = [program for program in PROGRAMS if _path(program) is None]
    if missing:
        return f"Slurm is not installed (no {', '.join(missing)}); Debian: apt-get install slurm-wlm munge"
    return None if os.getuid() == 0 else "starting Slurm's daemons needs root"


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Starts munged, slurmctld and slurmd on ports and in a folder of their own; stops them and all their jobs."""
    folder = Path(tempfile.mkdtemp(prefix="fglbench-slurm-"))
    # All of it is found by this variable again, also what a daemon started and lost.
    environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    try:
        _write(folder)
        _start(folder, environment)
        yield Cluster(environment, folder / "calls")
    finally:
        _stop(environment["SLURM_CONF"])
        shutil.rmtree(folder, ignore_errors=True)


def processes(conf: str) -> list[psutil.Process]:
    """Every process that belongs to the cluster of this slurm.conf.

    slurmstepd, which looks after a job's step, writes its title over its environment; it is where slurmd is.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SLURM_CONF") == conf or process.cwd() == str(Path(conf).parent):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _path(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def _write(folder: Path) -> None:
    folder.chmod(0o755)
    for name in ("state", "spool", "bin", "calls"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    host = socket.gethostname().split(".")[0]
    ports = _free_ports(2)
    conf = CONF.format(host=host, folder=folder, controller_port=ports[0], node_port=ports[1])
    (folder / "slurm.conf").write_text(conf)
    (folder / "gres.conf").write_text(GRES)
    (folder / "cgroup.conf").write_text("")
    for name, text in {
        "sbatch": SBATCH.format(calls=folder / "calls", sbatch=_path("sbatch")),
        "srun": SRUN.format(folder=folder, srun=_path("srun")),
    }.items():
        script = folder / "bin" / name
        script.write_text(text)
        script.chmod(0o755)


def _start(folder: Path, environment: dict[str, str]) -> None:
    munge = [f"--{name}={folder}/munge.{name.split('-')[0]}" for name in ("key-file", "socket", "pid-file", "log-file")]
    daemons = {
        "munged": ["--foreground", "--force", f"--seed-file={folder}/munge.seed", *munge],
        "slurmctld": ["-D", "-i", "-f", environment["SLURM_CONF"]],
        "slurmd": ["-D", "-f", environment["SLURM_CONF"]],
    }
    running = {}
    for name, arguments in daemons.items():
        with (folder / f"{name}.out").open("wb") as output:
            running[name] = subprocess.Popen(
                [str(_path(name)), *arguments],
                cwd=folder,
                env=os.environ | environment,
                stdout=output,
                stderr=output,
                start_new_session=True,  # an interrupt from a terminal or from `timeout` leaves them to _stop
            )
        _wait(lambda: (folder / "munge.socket").exists(), f"munged made no socket\n{_said(folder)}")

    def ready() -> bool:
        ended = [name for name, process in running.items() if process.poll() is not None]
        assert not ended, f"{', '.join(ended)} ended\n{_said(folder)}"
        asked = subprocess.run(
            ["sinfo", "--noheader", "--partition=plain", "--format=%T"],
            env=os.environ | environment, capture_output=True, text=True,
        )  # fmt: skip
        return asked.stdout.strip() == "idle"

    _wait(ready, f"the node did not become idle\n{_said(folder)}")


def _stop(conf: str) -> None:
    # Jobs first: a daemon that is killed before its jobs leaves them behind.
    for kill in (psutil.Process.terminate, psutil.Process.kill):
        found = processes(conf)
        for process in found:
            try:
                kill(process)
            except psutil.Error:
                continue
        psutil.wait_procs(found, timeout=10)
    left = processes(conf)
    assert not left, f"still running: {left}"


def _wait(true, otherwise: str, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, otherwise
        time.sleep(0.2)


def _said(folder: Path) -> str:
    return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2000:]}" for path in folder.glob("*.out"))


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
