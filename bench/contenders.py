"""Who is compared, with which settings. A setting is what one measurement runs: dicts with `label`,
`command` (what follows the program), `threads`, `processes`, whether these train one network
`together`, and `tcmalloc`."""

TRAIN_BATCHES = {"imagenet": (16, 32, 64), "cifar": (32, 64, 128, 256)}
TRAIN_SHARES = {"imagenet": (16, 32), "cifar": (16, 32, 64)}  # ours, an instance
INFER_BATCHES = {"imagenet": (1, 8, 32), "cifar": (16, 64, 256)}
CIFAR = ("resnet20", "resnet32", "resnet44", "resnet56", "resnet110")


def _family(model):
    return "cifar" if model in CIFAR else "imagenet"


def _some(values, quick):
    return values[1:2] if quick else values


def _torch(script, flags, batch, threads, processes, tcmalloc):
    label = f"batch {batch}" + (f" in each of {processes} processes" if processes > 1 else "")
    return {"label": label, "program": "python", "command": [script, *flags, "--batch", str(batch)],
            "threads": threads, "processes": processes, "tcmalloc": tcmalloc,
            "together": processes > 1 and script == "torch_train.py"}


def _parax(mode, batch, flags, label):
    return {"label": label, "program": "parax",
            "command": ["--mode", mode, "--batch", str(batch), *flags]}


def training(model, cores, tcmalloc, quick):
    """Ours, and {name: settings} of PyTorch's."""
    batches = _some(TRAIN_BATCHES[_family(model)], quick)
    script = "torch_train.py"
    last = ["--channels-last"]
    modes = {"PyTorch as installed": ([], False), "PyTorch, channels_last": (last, False)}
    if tcmalloc:
        modes["PyTorch, channels_last + tcmalloc"] = (last, True)
    modes["PyTorch, torch.compile + channels_last"] = (last + ["--compile"], bool(tcmalloc))
    others = {}
    for name, (flags, preload) in modes.items():
        others[name] = [_torch(script, flags, b, cores, 1, preload) for b in batches]
    if cores > 1:
        name = "PyTorch, DistributedDataParallel, a process a core"
        others[name] = [_torch(script, flags, b, 1, cores, bool(tcmalloc))
                        for flags in (last, last + ["--compile"])
                        for b in (batches[0], batches[-1])[:1 if quick else 2]]
        for setting in others[name]:
            setting["label"] += ", compiled" if "--compile" in setting["command"] else ""
    ours = [_parax("train", share * cores, ["--bn-group", str(share), "--instances", str(cores)],
                   f"batch {share * cores}")
            for share in _some(TRAIN_SHARES[_family(model)], quick)]
    return ours, others


def throughput(model, cores, tcmalloc, quick, onnx):
    batches = _some(INFER_BATCHES[_family(model)], quick)
    ways = [(cores, 1)] + ([(1, cores)] if cores > 1 else [])  # (threads, processes)
    preload = bool(tcmalloc)

    def settings(engine, more=()):
        return [_torch("infer.py", ["--engine", engine, *more], b, threads, processes, preload)
                for b in batches for threads, processes in ways]

    openvino = []
    for batch in batches:
        for streams in sorted({0, cores}):
            setting = _torch("infer.py", ["--engine", "openvino", "--onnx", onnx, "--hint",
                                          "throughput", "--streams", str(streams)],
                             batch, cores, 1, False)
            setting["label"] += f", {streams or 'its own choice of'} streams"
            openvino.append(setting)
    others = {"PyTorch, frozen": settings("torch-freeze"),
              "PyTorch, torch.compile": settings("torch-inductor"),
              "OpenVINO": openvino,
              "ONNX Runtime": settings("onnxruntime", ("--onnx", onnx))}
    ours = [_parax("infer", b * cores, ["--instances", str(cores)], f"{cores} instances, batch {b} each")
            for b in batches]
    return ours, others


def single_stream(model, cores, tcmalloc, quick, onnx):
    """One image after another, all cores on each."""
    del model, quick

    def setting(engine, *more):
        return [_torch("infer.py", ["--engine", engine, *more], 1, cores, 1,
                       bool(tcmalloc) and engine != "openvino")]

    others = {"PyTorch, frozen": setting("torch-freeze"),
              "PyTorch, torch.compile": setting("torch-inductor"),
              "OpenVINO": setting("openvino", "--onnx", onnx),
              "ONNX Runtime": setting("onnxruntime", "--onnx", onnx)}
    ours = [_parax("infer", 1, ["--instances", "1", "--cores-per-instance", "all"], "batch 1")]
    return ours, others
