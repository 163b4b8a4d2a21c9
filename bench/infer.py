"""Inference on synthetic images with another engine: one process of compare.py. Stops when the
engine's logits are not PyTorch's."""

import argparse
import time
import warnings

import torch

import networks
import timing


def torch_step(args, model, images):
    torch.set_num_threads(args.threads)
    model = model.to(memory_format=torch.channels_last)
    images = images.contiguous(memory_format=torch.channels_last)
    if args.engine == "torch-freeze":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated
            frozen = torch.jit.freeze(torch.jit.trace(model, images))
            model = torch.jit.optimize_for_inference(frozen)
    else:
        import torch._inductor.config as config

        config.freezing = True
        model = torch.compile(model)
    return lambda: model(images), torch.__version__


def openvino_model(args, images):
    import openvino

    core = openvino.Core()
    model = core.read_model(args.onnx)
    model.reshape(list(images.shape))
    # Without the precision it would take bf16 where the CPU has it.
    settings = {"INFERENCE_NUM_THREADS": args.threads, "INFERENCE_PRECISION_HINT": "f32",
                "PERFORMANCE_HINT": args.hint.upper()}
    if args.streams:
        settings["NUM_STREAMS"] = args.streams
    return core.compile_model(model, "CPU", settings), openvino.__version__.split("-")[0]


def openvino_throughput(compiled, images, seconds):
    """Keeps as many requests under way as the plugin recommends."""
    import openvino

    queue = openvino.AsyncInferQueue(compiled)
    ends = []
    queue.set_callback(lambda request, data: ends.append(time.perf_counter()))

    def run(duration, least):
        begin = time.perf_counter()
        started = 0
        while started < least or time.perf_counter() - begin < duration:
            queue.start_async({0: images})  # blocks while none is free
            started += 1

    run(seconds / 5, 2 * len(queue))
    queue.wait_all()
    timing.await_start()
    ends.clear()
    run(seconds, 4 * len(queue))
    full = len(ends)  # what ends later runs beside ever fewer others
    queue.wait_all()
    return {"images_per_s": timing.rate(ends[:max(full, 2)], len(images))}


def onnxruntime_step(args, images):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.add_free_dimension_override_by_name("batch", args.batch)
    session = onnxruntime.InferenceSession(args.onnx, options, providers=["CPUExecutionProvider"])
    images = images.numpy()
    return lambda: session.run(None, {"images": images})[0], onnxruntime.__version__


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", required=True,
                        choices=["torch-freeze", "torch-inductor", "openvino", "onnxruntime"])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--onnx", help="the network's file, of networks.export_onnx")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--hint", default="latency", choices=["latency", "throughput"])
    parser.add_argument("--streams", type=int, default=0, help="of OpenVINO; 0: as the hint says")
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()

    model, size, _ = networks.seeded_model(args.model)
    model.eval()
    images = torch.randn(args.batch, 3, size, size)
    with torch.no_grad():
        expected = model(images)
        asynchronous = args.engine == "openvino" and args.hint == "throughput"
        if args.engine == "openvino":
            compiled, version = openvino_model(args, images)
            array = images.numpy()
            step = lambda: compiled(array)[0]
        elif args.engine == "onnxruntime":
            step, version = onnxruntime_step(args, images)
        else:
            step, version = torch_step(args, model, images)
        error = (torch.as_tensor(step()) - expected).abs().max() / expected.abs().max()
        if not error < 1e-3:
            raise SystemExit(f"{args.engine}: logits differ from PyTorch's by {error:.1e} of the "
                             "largest: this is not the same network in fp32")
        if asynchronous:
            result = openvino_throughput(compiled, array, args.seconds)
        else:
            result = timing.measure(step, args.seconds, args.batch)
    timing.report(result, version)


if __name__ == "__main__":
    main()
