"""How good a model is, learned privately: one release, every metric with its interval."""

from privopt.evaluation.estimate import Estimate
from privopt.evaluation.evaluate import evaluate
from privopt.evaluation.evaluation import Evaluation
from privopt.evaluation.prediction_intervals import PredictionIntervals, prediction_intervals

__all__ = ["Estimate", "Evaluation", "PredictionIntervals", "evaluate", "prediction_intervals"]
