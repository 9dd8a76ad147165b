"""The flags of learning from another model."""

from official_bert.options.option import GIVEN, Options, layer_numbers, option, options

# Settings that some flags need.
WITH_TEACHER = {"teacher": GIVEN}


@options(group="distillation")
class TeacherOptions(Options):
    """Flags of every command that learns from the outputs of another model."""

    teacher: str | None = option(
        None,
        "Output folder of a finished run of the same script, or best in it, or a Hugging Face folder with a finished "
        "head: its outputs for the training examples are learned beside the labels (knowledge distillation).",
        is_path=True,
        only_with={"do_train": (True,)},
        affects="learning",
    )
    distillation_temperature: float = option(
        2.0,
        "With --teacher: what the logits of both models are divided by; above 1, unlikely answers count more.",
        minimum=0.01,
        maximum=1000,
        only_with=WITH_TEACHER,
        affects="learning",
    )
    soft_target_weight: float = option(
        0.5,
        "With --teacher: weight of the teacher's outputs in the loss; the labels have the rest.",
        minimum=0,
        maximum=1,
        only_with=WITH_TEACHER,
        affects="learning",
    )


@options(group="distillation")
class DistillationOptions(TeacherOptions):
    """Flags of every command that fine-tunes, for learning from another model."""

    hidden_state_weight: float = option(
        0.0,
        "With --teacher: weight in the loss of the squared differences between what the layers of both compute, those "
        "of the student projected to the teacher's size; the teacher then reads every batch anew. 0 leaves them out.",
        minimum=0,
        only_with=WITH_TEACHER,
        affects="learning",
    )
    teacher_layers: str | None = option(
        None,
        "With --hidden_state_weight: comma-separated list of the teacher's layers, one to learn for each of the "
        "student's, 0 is the first, -1 the last; by default evenly spaced, up to the last.",
        only_with={"hidden_state_weight": GIVEN},
        affects="learning",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.teacher_layers is not None:
            layer_numbers(self.teacher_layers, "teacher_layers")
