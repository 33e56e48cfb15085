"""What appending rows costs in accuracy: NLL on test rows before and after `update`, and after settling all rows again.

    python benchmarks/update.py [--seed 0]

`update` finds the auxiliaries of the appended rows and leaves those of their neighbours as they are. The last column
settles the auxiliaries of all rows, as a fit with the same hyper-parameters would.
"""

from __future__ import annotations

import argparse
import copy

import numpy as np
from _classes import load, split

from nearfield import GPClassifier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--datasets", default="spambase,bank,page_blocks")
    args = parser.parse_args()
    print("| data set | auxiliary | before | after update | all settled | largest change of a probability |")
    print("|---|---|---|---|---|---|")
    for name in args.datasets.split(","):
        X, y, X_test, y_test = split(*load(name), args.seed)
        known = np.isin(y_test, y)
        cut = len(X) * 2 // 3
        for auxiliary in ("tied", "conjugate"):
            model = GPClassifier(auxiliary=auxiliary, random_state=args.seed).fit(X[:cut], y[:cut])
            before = model.log_score(X_test[known], y_test[known])
            model.update(X[cut:], y[cut:])
            p = model.predict_proba(X_test)
            after = model.log_score(X_test[known], y_test[known])
            settled = copy.deepcopy(model)
            settled._fit.predictor._sweeper.settle(64)
            again = settled.log_score(X_test[known], y_test[known])
            change = np.abs(settled.predict_proba(X_test) - p).max()
            print(f"| {name} | {auxiliary} | {-before:.4f} | {-after:.4f} | {-again:.4f} | {change:.3f} |", flush=True)


if __name__ == "__main__":
    main()
