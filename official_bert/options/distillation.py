"""Flags for knowledge distillation."""

from official_bert.options.option import GIVEN, Options, layer_numbers, option, options

# Settings that some flags need.
WITH_TEACHER = {"teacher": GIVEN}


@options(group="distillation")
class TeacherOptions(Options):
    """Flags of every command that can distill a teacher model."""

    teacher: str | None = option(
        None,
        "Output folder of a finished run of the same script, its subfolder best, or a Hugging Face folder with a "
        "fine-tuned head. Its model is the teacher for knowledge distillation: the student learns from its outputs and "
        "from the labels.",
        is_path=True,
        only_with={"do_train": (True,)},
        affects="learning",
    )
    distillation_temperature: float = option(
        2.0,
        "With --teacher: temperature that the logits of both models are divided by; above 1, unlikely classes count "
        "more.",
        minimum=0.01,
        maximum=1000,
        only_with=WITH_TEACHER,
        affects="learning",
    )
    soft_target_weight: float = option(
        0.5,
        "With --teacher: weight of the distillation loss; that of the labels has 1 minus this weight.",
        minimum=0,
        maximum=1,
        only_with=WITH_TEACHER,
        affects="learning",
    )


@options(group="distillation")
class DistillationOptions(TeacherOptions):
    """Distillation flags of every command that fine-tunes."""

    hidden_state_weight: float = option(
        0.0,
        "With --teacher: weight of the mean squared difference between the hidden states of student and teacher, "
        "the student's projected to the teacher's size; the teacher then reads every batch again. 0 for none.",
        minimum=0,
        only_with=WITH_TEACHER,
        affects="learning",
    )
    teacher_layers: str | None = option(
        None,
        "With --hidden_state_weight: comma-separated list of teacher layers, one for each layer of the student; 0 is "
        "the first, -1 the last; by default evenly spaced, up to the last.",
        only_with={"hidden_state_weight": GIVEN},
        affects="learning",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.teacher_layers is not None:
            layer_numbers(self.teacher_layers, "teacher_layers")
