"""From a pandas frame to a private classifier with its certificate.

Columns are scaled by bounds that were written down before anyone looked at the data; scaling by
the data's own minimum and maximum would leak them. Needs pandas.

    python examples/private_pipeline.py
"""

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression as NonPrivate
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from privopt import Certificate, LogisticRegression

# Public knowledge about the measurements: every one of them lies between 0 and this.
UPPER = {
    "mean radius": 30.0,
    "mean texture": 40.0,
    "mean perimeter": 200.0,
    "mean area": 2600.0,
    "mean smoothness": 0.2,
    "mean compactness": 0.4,
    "mean concavity": 0.5,
    "mean concave points": 0.25,
    "mean symmetry": 0.35,
    "mean fractal dimension": 0.1,
}


def scale(frame: pd.DataFrame) -> pd.DataFrame:
    """Map each column from its declared range [0, upper] to [-1, 1]; what lies outside is cut."""
    upper = pd.Series(UPPER)
    return 2 * (frame[upper.index] / upper).clip(0, 1) - 1


def main() -> None:
    data = load_breast_cancer(as_frame=True)
    train, test, y_train, y_test = train_test_split(
        data.data, data.target, test_size=0.3, random_state=0, stratify=data.target
    )
    scaler = FunctionTransformer(scale)
    plain = make_pipeline(scaler, NonPrivate(max_iter=1000)).fit(train, y_train)
    private = make_pipeline(
        scaler,
        LogisticRegression(
            epsilon=2.0,
            delta=1e-5,
            data_norm=float(np.sqrt(len(UPPER))),  # the longest row that [-1, 1]^10 holds
            classes=[0, 1],
        ),
    ).fit(train, y_train)

    certificate = private[-1].privacy_
    path = Path("certificate.json")
    path.write_text(certificate.to_json() + "\n")
    assert Certificate.from_json(path.read_text()) == certificate

    print(certificate)
    print(f"written to {path}")
    print(f"accuracy on {len(test)} held-out patients, treated as public here:")
    print(f"  private      {private.score(test, y_test):.3f}")
    print(f"  non-private  {plain.score(test, y_test):.3f}")


if __name__ == "__main__":
    main()
