"""Classification of texts or pairs of texts."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from reprlib import repr as shortened
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from isotrain.arguments import checked
from isotrain.model.heads import LinearHead
from isotrain.tasks.data.encoding import Form
from isotrain.tasks.data.sources import HIDDEN, Source, load_split, number_of
from isotrain.tasks.texts import TextTask
from isotrain.types import Row

Score = Literal["accuracy", "f1", "matthews"]
MOST_NAMED = 20  # classes in the terminal
Weight = Annotated[float, Field(gt=0)]


class Classification(TextTask):
    """Classify one or two texts, by cross-entropy.

    Args: those of `TextTask`, and
        classes: names of the classes, by number; None = the different labels of train, sorted. A
            column may hold names or numbers.
        class_weights: a weight for each class, in their order or by their names (1 for one that is
            not named), or `balanced`: N/(C·n_c) for a class of n_c of the N training examples. The
            loss of an example is multiplied by the weight of its class.
        label_smoothing: share of the target that is spread over all classes, in [0, 1).
        metrics: scores; the first is monitored. `f1` is that of the second of two classes, and the
            mean over more classes; `matthews` is Matthews' correlation.

    Weights and smoothing apply in training only; the recorded loss of dev and test has neither.
    """

    @checked
    def __init__(
        self,
        name: str | None = None,
        text: Annotated[Sequence[str], Field(min_length=1, max_length=2)] = ("text",),
        label: str = "label",
        classes: Annotated[Sequence[str | int | bool], Field(min_length=2)] | None = None,
        form: Form = "cross",
        max_length: Annotated[int, Field(ge=3)] = 128,
        head_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1,
        prefix: str | Sequence[str] = "",
        class_weights: Literal["balanced"]
        | Sequence[Weight]
        | Mapping[str | int | bool, Weight]
        | None = None,
        label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        metrics: Annotated[Sequence[Score], Field(min_length=1)] = ("accuracy",),
        data_set: Mapping[str, Any] | None = None,
    ) -> None:
        names = tuple(map(str, classes or ()))
        if len(set(names)) < len(names):
            raise ValueError(f"task.classes must be different names, got {list(names)}")
        name, extra = name or "classification", {**(data_set or {})}
        if "classes" in extra:
            raise ValueError("task.data_set has no classes; name them by task.classes")
        super().__init__(name, text, label, int, form, max_length, head_dropout, prefix, extra)
        self.data_set = self.data_set._replace(classes=names, has_numbers=classes is not None)
        self.finds_classes = classes is None
        self.class_weights, self.label_smoothing = class_weights, label_smoothing
        self.scores, self.monitor = list(metrics), metrics[0]
        self.weight_C: Tensor | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes; known after `load` where they are those of train."""
        return len(self.data_set.classes)

    def load(self, source: Source) -> dict[str, list[Row]]:
        """Examples of each split, as `Task.load`; finds the classes if they are not given."""
        if self.finds_classes:
            target = self.data_set.target
            fields = {**self.data_set.fields, target: object}
            data_set = self.data_set._replace(fields=fields, classes=())
            labels = set[str]()
            for row in load_split(source, data_set, "train"):
                if (label := row[target]) == HIDDEN and "train" in data_set.hides:
                    continue
                if label == "" or label != label or not isinstance(label, str | int | float):
                    label_text = shortened(label)
                    raise ValueError(f"{row['at']}: {target}: must name a class, got {label_text}")
                labels.add(str(label))
            self.data_set = self.data_set._replace(classes=classes_of(labels, target))
        return super().load(source)

    def labels(self) -> str:
        """The classes in order, with any weights; empty if configured and without weights."""
        if not self.finds_classes and self.weight_C is None:
            return ""
        names = [n if n.strip() == n and "," not in n else repr(n) for n in self.data_set.classes]
        if self.weight_C is not None:
            pairs = zip(names, self.weight_C.tolist(), strict=True)
            names = [f"{name} (weight {weight:.3g})" for name, weight in pairs]
        suffix = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return f"classes: {', '.join(names[:MOST_NAMED])}{suffix}"

    def build_head(self, width: int, n_vectors: int) -> nn.Module:
        """Logits of the classes."""
        return LinearHead(width, n_vectors, n_outputs=self.n_classes, dropout=self.head_dropout)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy, in nats."""
        return nn.functional.cross_entropy(logits, labels)

    def see_training(self, rows: Sequence[Row]) -> None:
        """Set the weights of the classes."""
        if self.class_weights is not None:
            targets = [row[self.data_set.target] for row in rows]
            weights = weights_of(self.class_weights, self.data_set.classes, targets)
            self.weight_C = torch.tensor(weights, dtype=torch.float32)

    def training_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean over the examples of the weighted, smoothed cross-entropy, in nats."""
        weights, smoothing = self.weight_C, self.label_smoothing
        if weights is None:
            return nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)
        losses = nn.functional.cross_entropy(
            logits, labels, reduction="none", label_smoothing=smoothing
        )
        return (weights.to(labels.device)[labels] * losses).mean()

    def predictions(self, logits: Tensor) -> Tensor:
        """The likeliest class `[B]`."""
        return torch.argmax(logits, dim=1)

    def metrics(self) -> Any:
        """The scores over all examples: accuracy and F1 in [0, 1], Matthews' in [−1, 1]."""
        from torchmetrics import MetricCollection, classification  # checks need not wait for it

        from isotrain.tasks.correlation import Matthews

        n = self.n_classes
        factories: Mapping[Score, Callable[[], Any]] = {
            "accuracy": lambda: classification.MulticlassAccuracy(num_classes=n, average="micro"),
            "f1": lambda: (
                classification.BinaryF1Score()
                if n == 2
                else classification.MulticlassF1Score(num_classes=n, average="macro")
            ),
            "matthews": lambda: Matthews(num_classes=n),
        }
        return MetricCollection({name: factories[name]() for name in self.scores})

    def label(self, row: Row) -> int:
        """The number of the class."""
        return int(row[self.data_set.target])


def weights_of(
    class_weights: Literal["balanced"] | Sequence[float] | Mapping[Any, float],
    classes: Sequence[str],
    targets: Sequence[int],
) -> list[float]:
    """The weight of each class, in their order; `targets` are those of train.

    Raises:
        ValueError: another number of weights than of classes, or a name that no class has.

    >>> weights_of("balanced", ["a", "b"], [0, 0, 0, 1]), weights_of({"b": 3.0}, ["a", "b"], [])
    ([0.6666666666666666, 2.0], [1.0, 3.0])
    """
    if class_weights == "balanced":
        counts = Counter(targets)
        shares = [counts[c] * len(classes) / len(targets) for c in range(len(classes))]
        return [1 / share if share else 1.0 for share in shares]
    by_class = (
        class_weights
        if isinstance(class_weights, Mapping)
        else dict(zip(classes, class_weights, strict=False))
    )
    weights = {str(name): weight for name, weight in by_class.items()}
    if weights.keys() - {*classes}:
        raise ValueError(
            f"task.class_weights names {', '.join(sorted(weights.keys() - {*classes}))}; the "
            f"classes are {', '.join(classes)}"
        )
    if not isinstance(class_weights, Mapping) and len(class_weights) != len(classes):
        raise ValueError(
            f"task.class_weights must be a weight for each of {len(classes)} classes "
            f"({', '.join(classes)}), got {list(class_weights)}"
        )
    return [weights.get(name, 1.0) for name in classes]


def classes_of(labels: set[str], target: str) -> tuple[str, ...]:
    """The names of classes in order: numbers by their size, other names by letters.

    Raises:
        ValueError: fewer than two, or numbers that are no whole ones or written in two ways.

    >>> classes_of({"10", "9", "-1"}, "label"), classes_of({"b", "a"}, "label")
    (('-1', '9', '10'), ('a', 'b'))
    """
    numbers = {label: number for label in labels if (number := number_of(label)) is not None}
    if len(numbers) == len(labels) and any(number % 1 for number in numbers.values()):
        raise ValueError(
            f"{target} must hold classes, and train has scores such as {sorted(labels)[0]}; use "
            "task=regression or task=pair_regression"
        )
    if len(labels) < 2:
        raise ValueError(
            f"{target} must hold two classes or more, and train has {sorted(labels)}; name the "
            "column of the labels by task.label"
        )
    is_whole = len(numbers) == len(labels)
    if is_whole and len(set(numbers.values())) < len(numbers):
        raise ValueError(
            f"{target} must write each number in one way, and train has {sorted(labels)}"
        )
    return tuple(sorted(labels, key=lambda label: (numbers[label] if is_whole else 0, label)))
