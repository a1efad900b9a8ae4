# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the checkpoint fixtures with the real producers of NVFP4 checkpoints.

  pip install torch transformers accelerate requests compressed-tensors nvidia-modelopt
  python tests/checkpoints/make_fixtures.py tests/checkpoints/fixtures

Every quantised byte and every dequantised value comes out of ModelOpt's or compressed-tensors' own
code, never out of an imitation: the tests compare Tetrad with what the producers mean. The files
are checked in; run this again only to follow a new producer, and review the difference.
"""

import hashlib
import importlib.metadata
import json
import pathlib
import shutil
import sys

import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file

PACKAGES = ("torch", "safetensors", "transformers", "compressed-tensors", "nvidia-modelopt")
LAYER = "model.layers.0.mlp.experts"


def all_tensors(folder):
    """The tensors of every safetensors file in a folder."""
    tensors = {}
    for path in sorted(folder.glob("model*.safetensors")):
        tensors.update(load_file(path))
    return tensors


def new_folder(path):
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def keep_only(folder, names):
    """Drops what loaders of weights never open, such as generation_config.json."""
    for path in folder.iterdir():
        if not path.name.startswith("model") and path.name not in names:
            path.unlink()


def spread(linear, seed):
    """Fills a linear layer with weights whose blocks differ widely in size.

    Block scales of plain noise use a handful of values; a factor drawn per block makes them use
    the whole range, subnormal scales and zero blocks included.
    """
    generator = torch.Generator().manual_seed(seed)
    n, k = linear.weight.shape
    noise = torch.randn(n, k // 16, 16, generator=generator)
    exponent = torch.randint(-12, 1, (n, k // 16, 1), generator=generator)
    zero = torch.rand(n, k // 16, 1, generator=generator) < 0.03
    blocks = noise * torch.exp2(exponent.float()) * ~zero
    linear.weight.data = (0.03 * blocks).reshape(n, k).to(linear.weight.dtype)


class Expert(torch.nn.Module):
    def __init__(self, shapes):
        super().__init__()
        for name, (n, k) in shapes.items():
            setattr(self, name, torch.nn.Linear(k, n, bias=False, dtype=torch.bfloat16))


class Experts(torch.nn.Module):
    """model.layers.0.mlp.experts.N.<projection>, the names every serving stack knows."""

    def __init__(self, shapes, count, seed):
        super().__init__()
        experts = torch.nn.ModuleList(Expert(shapes) for _ in range(count))
        mlp = torch.nn.Module()
        mlp.experts = experts
        layer = torch.nn.Module()
        layer.mlp = mlp
        self.model = torch.nn.Module()
        self.model.layers = torch.nn.ModuleList([layer])
        linears = [m for m in self.modules() if isinstance(m, torch.nn.Linear)]
        for i, linear in enumerate(linears):
            spread(linear, seed + i)

    def forward(self, inputs):
        for module in self.modules():
            if isinstance(module, torch.nn.Linear):
                module(inputs[module.in_features])


# --- ModelOpt ---------------------------------------------------------------------------------


def modelopt_dequantized(tensors, weight, scale, scale_2):
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    packed = tensors[weight]
    shape = torch.Size((*packed.shape[:-1], packed.shape[-1] * 2))
    quantized = NVFP4QTensor(shape, torch.float32, packed)
    return quantized.dequantize(
        dtype=torch.float32,
        scale=tensors[scale],
        double_scale=tensors[scale_2],
        block_sizes={-1: 16},
    )


def modelopt_expected(tensors, projections, count):
    return {
        f"{LAYER}.{e}.{p}": modelopt_dequantized(
            tensors,
            f"{LAYER}.{e}.{p}.weight",
            f"{LAYER}.{e}.{p}.weight_scale",
            f"{LAYER}.{e}.{p}.weight_scale_2",
        )
        for p in projections
        for e in range(count)
    }


def make_modelopt(root):
    """A whole model through the unified export, in two shards with an index."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(1)
    model = Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            architectures=["Qwen3MoeForCausalLM"],
            hidden_size=96,
            intermediate_size=64,
            moe_intermediate_size=32,
            num_hidden_layers=1,
            num_experts=4,
            num_experts_per_tok=2,
            vocab_size=16,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
        )
    ).to(torch.bfloat16)

    def calibrate(quantized):
        for _ in range(4):
            quantized(torch.randint(0, 16, (2, 32)))

    model = mtq.quantize(model, mtq.NVFP4_DEFAULT_CFG, calibrate)
    folder = new_folder(root / "modelopt")
    export_hf_checkpoint(model, export_dir=folder, max_shard_size="40KB")
    keep_only(folder, ("config.json", "hf_quant_config.json"))
    expected = modelopt_expected(all_tensors(folder), ("up_proj", "down_proj"), 4)
    save_file(expected, folder / "expected.safetensors")


def make_modelopt_fused(root):
    """Fused experts as Llama 4 has them: one [G, K/2, N] parameter and its scales."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    from transformers import Llama4ForCausalLM, Llama4TextConfig

    torch.manual_seed(2)
    model = Llama4ForCausalLM(
        Llama4TextConfig(
            architectures=["Llama4ForCausalLM"],
            hidden_size=64,
            intermediate_size=32,
            intermediate_size_mlp=32,
            num_hidden_layers=1,
            num_local_experts=2,
            num_experts_per_tok=1,
            vocab_size=32,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
        )
    ).to(torch.bfloat16)

    def calibrate(quantized):
        for _ in range(4):
            quantized(torch.randint(0, 32, (2, 32)))

    model = mtq.quantize(model, mtq.NVFP4_DEFAULT_CFG, calibrate)
    folder = new_folder(root / "modelopt_fused")
    export_hf_checkpoint(model, export_dir=folder)
    keep_only(folder, ("config.json", "hf_quant_config.json"))
    tensors = all_tensors(folder)
    expected = {}
    for projection in ("gate_up_proj", "down_proj"):
        name = f"model.layers.0.feed_forward.experts.{projection}"
        if name not in tensors:
            raise RuntimeError(f"{name} is missing among {sorted(tensors)}")
        # The producer stores both transposed and quantises along the last dimension.
        turned = {
            "weight": tensors[name].transpose(-2, -1).contiguous(),
            "scale": tensors[f"{name}_weight_scale"].transpose(-2, -1).contiguous(),
            "scale_2": tensors[f"{name}_weight_scale_2"],
        }
        expected[name] = modelopt_dequantized(turned, "weight", "scale", "scale_2")
    save_file(expected, folder / "expected.safetensors")


def make_modelopt_quickstart(root, shapes, count):
    """A single file through the exporter of modules; the one that starts the daemon's tour."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export.unified_export_hf import _export_quantized_weight

    model = Experts(shapes, count, seed=100)
    torch.manual_seed(3)
    inputs = {k: torch.randn(64, k, dtype=torch.bfloat16) for _, k in shapes.values()}
    model = mtq.quantize(model, mtq.NVFP4_DEFAULT_CFG, lambda m: m(inputs))
    for module in list(model.modules()):
        if isinstance(module, torch.nn.Linear):
            _export_quantized_weight(module, torch.bfloat16)
    tensors = {n: t.contiguous() for n, t in model.state_dict().items() if "quantizer" not in n}
    folder = new_folder(root / "quickstart_modelopt")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


# --- compressed-tensors -----------------------------------------------------------------------


def compressed_model(shapes, count, seed, scheme):
    """Experts with the library's own quantisation parameters, compressed in place."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import (
        QuantizationConfig,
        apply_quantization_config,
        preset_name_to_scheme,
    )
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    model = Experts(shapes, count, seed)
    config = QuantizationConfig(
        config_groups={"group_0": preset_name_to_scheme(scheme, ["Linear"])}
    )
    apply_quantization_config(model, config)
    torch.manual_seed(seed)
    for module in model.modules():
        if not isinstance(module, torch.nn.Linear):
            continue
        weight = module.weight.data.float()
        module.weight_global_scale.data.copy_(generate_gparam(weight.min(), weight.max()))
        blocks = weight.reshape(weight.shape[0], -1, 16)
        scale, _ = calculate_qparams(
            blocks.amin(-1),
            blocks.amax(-1),
            module.quantization_scheme.weights,
            global_scale=module.weight_global_scale,
        )
        module.weight_scale.data.copy_(scale)
        if hasattr(module, "input_global_scale"):
            inputs = torch.randn(64, module.in_features)
            module.input_global_scale.data.copy_(generate_gparam(inputs.min(), inputs.max()))
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    return model, compressor


def compressed_expected(model):
    from compressed_tensors.compressors.nvfp4 import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    expected = {}
    for name, module in model.named_modules():
        if not hasattr(module, "weight_packed"):
            continue
        n, half_k = module.weight_packed.shape
        expected[name] = dequantize(
            x_q=unpack_fp4_from_uint8(module.weight_packed, n, half_k * 2, torch.float32),
            scale=module.weight_scale.to(torch.float32),
            args=module.quantization_scheme.weights,
            dtype=torch.float32,
            global_scale=module.weight_global_scale,
        ).contiguous()
    return expected


def make_compressed(root, name, shapes, count, seed, scheme, expect, shard_bytes):
    model, compressor = compressed_model(shapes, count, seed, scheme)
    folder = new_folder(root / name)
    tensors = {n: t.detach().contiguous() for n, t in model.state_dict().items()}
    save_torch_state_dict(tensors, folder, max_shard_size=shard_bytes)
    compressor.update_config(folder)
    if expect:
        save_file(compressed_expected(model), folder / "expected.safetensors")


# ----------------------------------------------------------------------------------------------


def write_manifest(root):
    files = []
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name != "manifest.json":
            path.chmod(0o644)
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            files.append({"path": str(path.relative_to(root)), "sha256": digest})
    manifest = {
        "producers": {name: importlib.metadata.version(name) for name in PACKAGES},
        "files": files,
    }
    (root / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def main():
    root = pathlib.Path(sys.argv[1])
    make_modelopt(root)
    make_modelopt_fused(root)
    shapes = {"up_proj": (32, 96), "down_proj": (64, 32)}
    make_compressed(root, "compressed_tensors", shapes, 4, 200, "NVFP4", True, 10_000)
    shapes = {"up_proj": (32, 64)}
    make_compressed(root, "compressed_tensors_w4a16", shapes, 2, 300, "NVFP4A16", True, 10**9)
    shapes = {"up_proj": (256, 256)}
    make_modelopt_quickstart(root, shapes, 8)
    make_compressed(
        root, "quickstart_compressed_tensors", shapes, 8, 100, "NVFP4", False, 10**9
    )
    write_manifest(root)


if __name__ == "__main__":
    main()
