"""Flags for devices and number formats."""

from official_bert.options.option import MAX_PARTS, Options, option, options


@options(group="devices")
class DeviceOptions(Options):
    """Flags of every command that runs a model."""

    use_tpu: bool = option(False, "Train on a TPU.", affects="learning")
    tpu_name: str | None = option(
        None, "Name or grpc:// address of the TPU, with --use_tpu.", group="rarely needed", affects="nothing"
    )
    tpu_zone: str | None = option(
        None, "Google Cloud zone of the TPU, with --use_tpu.", group="rarely needed", affects="nothing"
    )
    gcp_project: str | None = option(
        None, "Google Cloud project of the TPU, with --use_tpu.", group="rarely needed", affects="nothing"
    )
    master: str | None = option(
        None, "Address of the TPU, if --tpu_name is not given.", group="rarely needed", affects="nothing"
    )
    num_tpu_cores: int = option(
        8,
        "Required number of TPU cores, with --use_tpu.",
        group="rarely needed",
        minimum=1,
        affects="nothing",
    )

    distribution: str = option(
        "auto",
        "Distribution strategy: one device, several of this machine (mirrored: all GPUs, or --num_replicas of them), "
        "several machines (multi_worker) or a TPU. auto means tpu with --use_tpu, multi_worker if TF_CONFIG "
        "names several workers, mirrored if --num_replicas is not 1, and one_device otherwise.",
        choices=("auto", "one_device", "mirrored", "multi_worker", "tpu"),
        affects="nothing",
    )
    num_replicas: int = option(
        1,
        "Number of devices to use: GPUs, or virtual CPU devices if there are no GPUs; 0 for all GPUs.",
        minimum=0,
        maximum=MAX_PARTS,
        affects="nothing",
    )
    mixed_precision: str = option(
        "none",
        "Number format of activations and gradients; weights, softmax, normalization and losses stay float32. auto "
        "chooses the fastest format for the devices; none computes everything in float32.",
        choices=("none", "bfloat16", "float16", "auto"),
        affects="learning",
    )
