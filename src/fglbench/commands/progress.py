"""Progress bars of trainings in the terminal."""

import math
import sys
from collections.abc import Callable

from fglbench.stages.options import Progress


def progress_bars(rounds: int) -> Callable[[int], Progress | None]:
    """Return the callback factory of a progress bar with round, loss and validation score.

    Args:
        rounds: the number of rounds.

    Returns:
        A function from a seed to the callback for its rounds. It returns None if standard error is not a terminal.
    """
    if not sys.stderr.isatty():
        return lambda seed: None
    from tqdm import tqdm

    def bar(seed: int) -> Progress:
        shown = tqdm(total=rounds, desc=f"seed {seed}", unit="round")

        def update(number: int, loss: float, validation: float) -> None:
            scores = {"loss": f"{loss:.3f}"} | ({} if math.isnan(validation) else {"val": f"{100 * validation:.1f}"})
            shown.set_postfix(scores, refresh=False)
            shown.update()
            if number + 1 == rounds:
                shown.close()

        return update

    return bar
