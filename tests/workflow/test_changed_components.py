"""A user's method that changed without a new VERSION: its cells alone are trained again, or kept with a warning."""

from pathlib import Path

from fglbench.storage import hash_file

from .conftest import ROOT, job_counts, run_snakemake, write_config


def test_a_changed_method_of_the_user_is_trained_again_or_warned_of(tmp_path: Path):
    path = tmp_path / "mine" / "methods" / "copycat.py"
    path.parent.mkdir(parents=True)
    path.write_text((ROOT / "src/fglbench/methods/fedavg.py").read_text())
    study = {"partitions": ["random"], "methods": ["fedavg", "copycat"], "seeds": 1}
    write_config(tmp_path, **study, components=["mine"])
    first = run_snakemake(tmp_path, "--cores", "2", "train")
    assert first.returncode == 0, first.stdout + first.stderr
    (mine,) = tmp_path.glob("results/train/karate/*/copycat-*/seed0/run.json")
    (shipped,) = tmp_path.glob("results/train/karate/*/fedavg-*/seed0/run.json")
    old, before = hash_file(path), (mine.read_bytes(), shipped.read_bytes())
    path.write_text(path.read_text() + "\n# another line\n")

    write_config(tmp_path, **study, components={"folders": ["mine"], "trust": "warn"})
    warned = run_snakemake(tmp_path, "--cores", "2", "train")
    said = warned.stdout + warned.stderr
    assert warned.returncode == 0, said
    assert job_counts(said)["train_cell"] == 1
    assert f"kept: {path} changed and its VERSION did not: SHA-256 {hash_file(path)[:12]}, recorded {old[:12]}" in said
    assert (mine.read_bytes(), shipped.read_bytes()) == before

    write_config(tmp_path, **study, components=["mine"])
    again = run_snakemake(tmp_path, "--cores", "2", "train")
    assert again.returncode == 0, again.stdout + again.stderr
    assert mine.read_bytes() != before[0]
    assert shipped.read_bytes() == before[1]
    planned = run_snakemake(tmp_path, "-n", "train")
    assert "Nothing to be done" in planned.stdout + planned.stderr
