"""The parts of a measurement on an accelerator: commands, requirements and time limits.

Seconds are what one H100 or H200 with 16 cores and nothing compiled yet needs, as far as it was
measured (a program of MiniLM or of BERT-base takes 20 to 80 s to compile): they only divide the
time, and what a part does not use goes to those after it.
"""

import dataclasses
import importlib.util
from pathlib import Path

DEVICE, MODELS = "device", "models"
# The kinds of parts, and the module of `benchmarks` that measures each: it takes --json, and has a
# function `table`.
KINDS = {
    DEVICE: "accelerator.device",
    MODELS: "accelerator.models",
    "parity": "accelerator.parity",
    "train_step": "train_step",
    "group": "accelerator.step",
    "encode": "encode",
    "search": "search",
    "memory": "accelerator.step",
    "flags": "accelerator.step",
}
# Each differs from XLA's default in jaxlib 0.10, where Triton GEMMs (of any shape), all kinds of
# command buffers (CUDA graphs) and autotuning at level 4 are on, and the others off.
_FLAGS = (
    "--xla_gpu_enable_triton_gemm=false",
    "--xla_gpu_enable_command_buffer=",
    "--xla_gpu_enable_latency_hiding_scheduler=true",
    "--xla_gpu_autotune_level=0",
    "--xla_gpu_cudnn_gemm_fusion_level=3",
    "--xla_gpu_enable_cublaslt=true",
    "--xla_gpu_triton_gemm_any=false",
    "--xla_gpu_exhaustive_tiling_search=true",
)
_UNKNOWN_FLAG = "--xla_gpu_no_such_flag=true"  # of a small run: it shows what becomes of one
# The package that a system of `benchmarks.train_step` needs, besides ours.
_PACKAGE_OF_SYSTEM = {"ours": "jax", "recipe": "pytorch_metric_learning", "tuned": "torch"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredPart:
    """A part, which is run as one process.

    Attributes:
        name: in the results.
        kind: one of KINDS, what --parts calls it.
        arguments: for the module.
        expected: seconds.
        most: seconds that it may take where there is time.
        needs: names of parts that must have succeeded.
        spare: gets only what the others leave.
        xla_flags: added to XLA_FLAGS.
        note: what it leaves out, in words.
    """

    name: str
    kind: str
    arguments: tuple[str, ...] = ()
    expected: float
    most: float
    needs: tuple[str, ...] = ()
    spare: bool = False
    xla_flags: str = ""
    note: str = ""

    @property
    def module(self) -> str:
        """The module of `benchmarks` that measures it."""
        return KINDS[self.kind]

    @property
    def command(self) -> str:
        """The command as typed, without --json."""
        before = f"XLA_FLAGS={self.xla_flags} " if self.xla_flags else ""
        return " ".join([f"{before}python -m benchmarks.{self.module}", *self.arguments])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """The size of a measurement: further arguments of each module, and what is tried."""

    batches: tuple[str, ...]
    shapes: tuple[str, ...]  # of encoders: the one that matters most, then others
    parity: tuple[str, ...]
    train_step: tuple[str, ...]
    encode: tuple[str, ...]
    search: tuple[str, ...]
    step: tuple[str, ...]
    flags: tuple[str, ...]
    large_groups: tuple[tuple[int, int], ...]  # (pairs, chunks), each tried in a process of its own


FULL = Sizes(
    batches=(),  # of the paper's step
    shapes=("base", "minilm"),
    parity=("--terms", "400"),
    train_step=("--rounds", "3", "--steps", "20", "--batches", "1", "--limit-seconds", "0.3"),
    encode=("--terms", "20000", "--rounds", "3", "--limit-seconds", "0.3")
    + ("--batch-sizes", "256", "1024", "4096"),
    search=("--num-keys", "500000", "--width", "768", "--k", "10", "--num-queries", "1", "2000")
    + ("--rounds", "3", "--limit-seconds", "0.3"),
    step=("--rounds", "3", "--steps", "20", "--batches", "1"),
    flags=_FLAGS,
    large_groups=((4_096, 1), (4_096, 16), (8_192, 1), (8_192, 32)),
)
SMALL = Sizes(
    batches=("--groups", "1", "--triplets", "4", "--repeats", "2"),
    shapes=("tiny",),
    parity=("--terms", "16"),
    train_step=("--rounds", "1", "--steps", "1", "--batches", "1", "--limit-seconds", "0.05"),
    encode=("--terms", "50", "--rounds", "1", "--limit-seconds", "0.05", "--batch-sizes", "32"),
    search=("--num-keys", "2000", "--width", "64", "--k", "10", "--num-queries", "1", "32")
    + ("--rounds", "1", "--limit-seconds", "0.05"),
    step=("--rounds", "1", "--steps", "1", "--batches", "1"),
    flags=(_FLAGS[0], _UNKNOWN_FLAG),
    large_groups=((8, 1), (8, 2)),
)


def _memory_part(shape: str, dtype: str) -> str:
    """The name of the part that measures our step alone, without an XLA flag."""
    return f"memory, {shape}, {dtype}"


def _systems_here() -> tuple[tuple[str, ...], str]:
    """The train-step systems whose packages are installed, and a remark on the others."""
    absent = {
        system: package
        for system, package in _PACKAGE_OF_SYSTEM.items()
        if importlib.util.find_spec(package) is None
    }
    here = tuple(system for system in _PACKAGE_OF_SYSTEM if system not in absent)
    said = [f"{system}: the package {package} is not here" for system, package in absent.items()]
    return here, "; ".join(said)


@dataclasses.dataclass(frozen=True)
class Maker:
    """Makes the parts.

    Args:
        prepared: folder of `prepare`.
        work: folder for the encoders.
        sizes: how large.
        relations: matrices of a train step.
    """

    prepared: Path
    work: Path
    sizes: Sizes
    relations: int

    def on(self, shape: str) -> tuple[str, ...]:
        """The batches, and an encoder that the part MODELS makes."""
        return (*self.batches, "--encoder", str(self.work / shape))

    @property
    def data(self) -> tuple[str, ...]:
        """The dataset."""
        return "--data", str(self.prepared / "dataset")

    @property
    def batches(self) -> tuple[str, ...]:
        """Batches of it."""
        return (*self.data, *self.sizes.batches)

    def models(self) -> MeasuredPart:
        """Encoders of random weights."""
        return MeasuredPart(
            name=MODELS,
            kind=MODELS,
            arguments=(*self.sizes.shapes, *self.data, "--out", str(self.work)),
            expected=30,
            most=90,
        )

    def parity(self, shape: str, expected: float, *, spare: bool = False) -> MeasuredPart:
        """Steps and vectors, compared with those of the CPU."""
        return MeasuredPart(
            name=f"parity, {shape}",
            kind="parity",
            arguments=(*self.on(shape), *self.sizes.parity),
            expected=expected,
            most=2 * expected,
            needs=(MODELS,),
            spare=spare,
        )

    def train_step(
        self, shape: str, expected: float, systems: tuple[str, ...], *, spare: bool = False
    ) -> MeasuredPart:
        """A train step and its peers; all installed systems if none is given."""
        here, left_out = _systems_here()
        arguments = ("--dtype", "bfloat16", "--relations", str(self.relations))
        return MeasuredPart(
            name=f"train step, {shape}",
            kind="train_step",
            arguments=(*self.on(shape), *arguments, *self.sizes.train_step)
            + ("--systems", *(systems or here)),
            expected=expected,
            most=2 * expected,
            needs=(MODELS,),
            spare=spare,
            note="" if systems else left_out,
        )

    def encode(self, shape: str, dtype: str, *, spare: bool = False) -> MeasuredPart:
        """Encoding of terms, compared with sentence-transformers."""
        terms = ("--data", str(self.prepared / "terms.txt"), "--pooling", "mean", "--dtype", dtype)
        return MeasuredPart(
            name=f"encode, {shape}, {dtype}",
            kind="encode",
            arguments=("--model", str(self.work / shape), *terms, *self.sizes.encode),
            expected=110,
            most=200,
            needs=(MODELS,),
            spare=spare,
        )

    def search(self) -> MeasuredPart:
        """Nearest-vector search, compared with torch on the GPU or faiss."""
        return MeasuredPart(
            name="search",
            kind="search",
            arguments=self.sizes.search,
            expected=75,
            most=120,
            spare=True,
        )

    def large_group(
        self, shape: str, pairs: int, chunks: int, *, spare: bool = False
    ) -> MeasuredPart:
        """One group of synonyms: whether it fits, and what it takes."""
        arguments = ("--pairs", str(pairs), "--cache-chunks", str(chunks), *self.sizes.step)
        return MeasuredPart(
            name=f"group, {shape}, {pairs} pairs, {chunks} chunks",
            kind="group",
            arguments=(*self.on(shape), "--dtype", "bfloat16", *arguments),
            expected=60,
            most=150,
            needs=(MODELS,),
            spare=spare,
        )

    def step(self, shape: str, dtype: str, *, spare: bool = False, flag: str = "") -> MeasuredPart:
        """Our step alone: memory and compilation, optionally with an XLA flag."""
        named = flag.removeprefix("--")
        arguments = ("--dtype", dtype, "--relations", str(self.relations), *self.sizes.step)
        return MeasuredPart(
            name=named or _memory_part(shape, dtype),
            kind="flags" if flag else "memory",
            arguments=(*self.on(shape), *arguments, *(("--flags", named) if flag else ())),
            expected=75,
            most=200,
            # A flag's step is compared with the one without it, measured in the same call.
            needs=(MODELS, _memory_part(shape, dtype)) if flag else (MODELS,),
            spare=spare,
            xla_flags=flag,
        )


def make_parts(maker: Maker, systems: tuple[str, ...] = ()) -> list[MeasuredPart]:
    """All parts, in the order in which they run: the most informative first.

    Args:
        maker: what they are made of.
        systems: of the train step; all that are here if empty.
    """
    first, *others = maker.sizes.shapes
    last = others[-1] if others else first
    (small_group, plain), *larger = maker.sizes.large_groups
    parts = [
        MeasuredPart(name=DEVICE, kind=DEVICE, expected=15, most=60),
        maker.models(),
        maker.parity(last, 110),
        maker.train_step(first, 200, systems),
        *(maker.train_step(shape, 160, systems, spare=True) for shape in others),
        maker.large_group(last, small_group, plain),
        *(maker.large_group(last, *size, spare=size != larger[0]) for size in larger),
        maker.encode(last, "bfloat16", spare=True),
        maker.search(),
        maker.step(last, "bfloat16", spare=True),
    ]
    # Of the small encoder: what is asked is above all by how much a flag shortens a compilation.
    flags = [maker.step(last, "bfloat16", spare=True, flag=flag) for flag in maker.sizes.flags]
    if not others:
        return parts + flags
    return [
        *parts,
        *flags,
        maker.step(first, "bfloat16", spare=True),
        maker.encode(last, "float32", spare=True),
        maker.step(first, "float32", spare=True),
        maker.parity(first, 180, spare=True),
    ]
