"""What an installed wheel must be able to do, with nothing but what it installs itself.

Run by `make dist` in an empty environment, from a folder that is not the checkout.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import privopt

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (2000, 3))
y = X @ [4, -2, 1] + rng.logistic(size=2000) > 0
model = privopt.LogisticRegression(1.0, 1e-6, bounds=(-1, 1), classes=[False, True]).fit(X, y)
assert model.score(X, y) > 0.7
assert privopt.Certificate.from_json(model.privacy_.to_json()).verify()
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.skops"
    privopt.save(model, path)
    assert np.array_equal(privopt.load(path).coef_, model.coef_)
command = Path(sys.executable).with_name("privopt")
asked = [command, "account", "--noise-multiplier", "2", "--delta", "1e-6"]
assert "2.2" in subprocess.run(asked, check=True, capture_output=True, text=True).stdout
print(
    f"privopt {privopt.__version__} on Python {sys.version.split()[0]}: {model.privacy_.epsilon=}"
)
