# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The table of bad_input_test.py: what is sent, and how it must be refused.

A case is (name, method, messages, code, reason, field): `messages` makes the
request, or the list of requests of a stream, from a World; `field` is a part of
the field that a violation must name, or None where no field is at fault."""
import struct

N, K, M = 24, 64, 3
GROUPS = 2
ROWS = 2 * M - 1
CODES = GROUPS * N * K // 2
SCALES = GROUPS * N * K // 16
ONE_CODES, ONE_SCALE, ONE_BF16 = b"\x22", b"\x38", struct.pack("<H", 0x3F80)
NAN, INF = float("nan"), float("inf")

BAD, MISSING, EXISTS = "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS"
ORDER, STALE, FULL = "FAILED_PRECONDITION", "ABORTED", "RESOURCE_EXHAUSTED"
RANGE, ABSENT, FORM, CONFLICT = "FIELD_OUT_OF_RANGE", "FIELD_MISSING", "FIELD_MALFORMED", "FIELD_CONFLICT"
ENUM, SIZE, OVERLAP = "UNKNOWN_ENUM_VALUE", "SIZE_MISMATCH", "OPERANDS_OVERLAP"

# Texts that are no name, handle or key, and how each is called.
ODD_TEXTS = [("empty", ""), ("newline", "a\nb"), ("NUL", "a\0b"), ("space", "a b"), ("not ASCII", "ä\U0001F600"),
             ("long", "w" * 100_000), ("path", "../../etc/passwd"), ("format", "%s%n"), ("quote", "'\";--")]


class World:
    """What cases are made of: good requests, and handles that exist."""

    def __init__(self, api, plan, lease, blocks, ticket):
        self.api, self.plan, self.lease, self.blocks, self.ticket = api, plan, lease, blocks, ticket

    def new(self, name, /, **fields):
        return self.api.new(name, **fields)

    @property
    def no_ticket(self):
        """Like one, but of no request."""
        return self.ticket[:-1] + ("0" if self.ticket[-1] != "0" else "1")

    def signature(self, **fields):
        given = {"weights": "good", "activation_type": 3, "output_type": 3}
        if not {"exact", "capacity"} & set(fields):
            given["exact"] = self.new("RowCounts", m=[M, M - 1])
        return self.new("Signature", **{**given, **fields})

    def inline(self, **fields):
        return self.new("InlineOperands", **{"activations": ONE_BF16 * (ROWS * K), **fields})

    def execute(self, signature=None, **fields):
        if not {"inline_operands", "block_operands"} & set(fields):
            fields["inline_operands"] = self.inline()
        return self.new("ExecuteRequest", signature=signature or self.signature(), **fields)

    def prepare(self, **fields):
        return self.new("PrepareRequest", signature=self.signature(**fields))

    def capacity(self, m_source=2, rows=4, **fields):
        return self.signature(group_form=2, capacity=self.new("Capacity", m_source=m_source, rows=rows), **fields)

    def counts(self, values):
        """Device-side M with counts inline: capacity of 4 rows a group."""
        return self.execute(self.capacity(), inline_operands=self.new(
            "InlineOperands", activations=ONE_BF16 * (GROUPS * 4 * K), m_values=values))

    def offsets(self, values):
        return self.execute(self.capacity(m_source=1, rows=8), inline_operands=self.new(
            "InlineOperands", activations=ONE_BF16 * (8 * K), m_values=values))

    def range(self, block=0, offset=0, size=4096):
        name = self.blocks[block] if isinstance(block, int) else block
        return self.new("BlockRange", block=name, offset=offset, bytes=size)

    def blocks_of(self, **fields):
        return self.execute(block_operands=self.new("BlockOperands", **{
            "activations": self.range(0), "output": self.range(1), **fields}))

    def header(self, **fields):
        return self.new("UploadRequest", header=self.new("UploadHeader", **{
            "name": "fresh", "groups": [self.new("GroupDims", n=N, k=K)], "group_count": GROUPS, "seal": True, **fields}))

    def chunk(self, operand, data, offset=0):
        return self.new("UploadRequest", chunk=self.new("UploadChunk", operand=operand, data=data, offset=offset))

    def upload(self, header=None, codes=ONE_CODES * CODES, scales=ONE_SCALE * SCALES):
        return [header or self.header(), self.chunk(1, codes), self.chunk(2, scales)]

    def dims(self, n, k):
        return self.upload(self.header(groups=[self.new("GroupDims", n=n, k=k)]))


def prepare_cases():
    def case(name, reason, field, code=BAD, **fields):
        return ("prepare: " + name, "Gemm/Prepare", lambda w: w.prepare(
            **{key: value(w) if callable(value) else value for key, value in fields.items()}), code, reason, field)

    def rows(*m):
        return lambda w: w.new("RowCounts", m=m)

    def capacity(**fields):
        return lambda w: w.new("Capacity", **fields)

    yield ("prepare: nothing", "Gemm/Prepare", lambda w: w.new("PrepareRequest"), BAD, ABSENT, "signature")
    for what, text in ODD_TEXTS:
        if what == "path":  # a legal name: names are no paths
            continue
        yield case(f"weights {what}", ABSENT if text == "" else FORM, "signature.weights", weights=text)
    yield case("weights unknown", "WEIGHTS_NOT_FOUND", None, MISSING, weights="nobody")
    yield case("weights of no such version", "WEIGHTS_NOT_FOUND", None, MISSING, weights="good@999")
    yield case("weights with version 0", FORM, "weights", weights="good@0")
    yield case("weights with version -1", FORM, "weights", weights="good@-1")
    yield case("weights with a word as version", FORM, "weights", weights="good@new")
    yield case("weights that are not sealed", "WEIGHTS_NOT_SEALED", None, ORDER, weights="unsealed")
    yield case("activation type missing", ABSENT, "signature.activation_type", activation_type=0)
    for value in (4, -1, 2**31 - 1):
        yield case(f"activation type {value}", ENUM, "signature.activation_type", activation_type=value)
    yield case("output type missing", ABSENT, "signature.output_type", output_type=0)
    yield case("output type unknown", ENUM, "signature.output_type", output_type=4)
    yield case("scale layout unknown", ENUM, "signature.activation_scale_layout", activation_scale_layout=3)
    yield case("output layout unknown", ENUM, "signature.output_layout", output_layout=3)
    yield case("group form unknown", ENUM, "signature.group_form", group_form=3)
    yield case("epilogue unknown", ENUM, "signature.epilogue", epilogue=1)
    yield case("no rows", ABSENT, "signature.rows", exact=None)
    yield case("too few rows", SIZE, "m", exact=rows(1))
    yield case("too many rows", SIZE, "m", exact=rows(1, 1, 1))
    yield case("negative rows", RANGE, "m", exact=rows(1, -1))
    yield case("negative stride", RANGE, "output_stride", output_stride=-1)
    yield case("stride below n", RANGE, "output_stride", output_stride=N - 1)
    yield case("stride beyond all memory", RANGE, "m", output_stride=2**62)
    yield case("column-major stride below m", RANGE, "output_stride", output_layout=2, output_stride=M - 1)
    yield case("capacity of separate groups", CONFLICT, "group_form", capacity=capacity(m_source=2, rows=4))
    yield case("capacity without source", ABSENT, "m_source", group_form=2, capacity=capacity(rows=4))
    yield case("capacity with unknown source", ENUM, "m_source", group_form=2, capacity=capacity(m_source=3, rows=4))
    yield case("negative capacity", RANGE, "rows", group_form=2, capacity=capacity(m_source=2, rows=-1))
    yield case("capacity beyond all memory", RANGE, "rows", group_form=2, capacity=capacity(m_source=2, rows=2**62))
    for what, text in ODD_TEXTS[1:]:
        yield ("prepare: lease " + what, "Gemm/Prepare",
               lambda w, text=text: w.new("PrepareRequest", signature=w.signature(), lease=text), BAD, FORM, "lease")


def execute_cases():
    def case(name, make, reason, field, code=BAD):
        return ("execute: " + name, "Gemm/Execute", make, code, reason, field)

    def inline(name, reason, field, **fields):
        return case(name, lambda w: w.execute(inline_operands=w.inline(**fields)), reason, field)

    good = ONE_BF16 * (ROWS * K)
    yield case("nothing", lambda w: w.new("ExecuteRequest"), ABSENT, "plan_or_signature")
    yield case("no operands", lambda w: w.new("ExecuteRequest", signature=w.signature()), ABSENT, "operands")
    yield inline("activations missing", SIZE, "activations", activations=b"")
    yield inline("activations a byte short", SIZE, "activations", activations=good[:-1])
    yield inline("activations a byte long", SIZE, "activations", activations=good + b"x")
    yield inline("scales of BF16 activations", SIZE, "activation_scales", activation_scales=b"\x38")
    yield inline("alpha for one group of two", SIZE, "alpha", alpha=[1.0])
    yield inline("alpha for three", SIZE, "alpha", alpha=[1.0] * 3)
    yield inline("alpha NaN", RANGE, "alpha", alpha=[1.0, NAN])
    yield inline("alpha infinite", RANGE, "alpha", alpha=[INF, 1.0])
    yield inline("row scales nobody asked for", SIZE, "row_scale", row_scale=[1.0] * ROWS)
    yield inline("m values nobody asked for", SIZE, "m_values", m_values=[1, 1])
    yield case("row scales missing", lambda w: w.execute(w.signature(row_scale=True)), SIZE, "row_scale")
    yield case("row scales one short", lambda w: w.execute(
        w.signature(row_scale=True), inline_operands=w.inline(row_scale=[1.0] * (ROWS - 1))), SIZE, "row_scale")
    yield case("NVFP4 without scales", lambda w: w.execute(
        w.signature(activation_type=1), inline_operands=w.inline(activations=ONE_CODES * (ROWS * K // 2))),
        SIZE, "activation_scales")
    yield case("counts missing", lambda w: w.counts([]), SIZE, "m_values")
    yield case("counts one short", lambda w: w.counts([1]), SIZE, "m_values")
    yield case("counts one long", lambda w: w.counts([1, 1, 1]), SIZE, "m_values")
    yield case("count negative", lambda w: w.counts([1, -1]), "COUNTS_BEYOND_CAPACITY", "m_values")
    yield case("count beyond the capacity", lambda w: w.counts([5, 1]), "COUNTS_BEYOND_CAPACITY", "m_values")
    yield case("offsets that do not begin at 0", lambda w: w.offsets([1, 2, 3]), "COUNTS_BEYOND_CAPACITY", "m_values")
    yield case("offsets that fall", lambda w: w.offsets([0, 3, 2]), "COUNTS_BEYOND_CAPACITY", "m_values")
    yield case("offsets beyond the capacity", lambda w: w.offsets([0, 3, 9]), "COUNTS_BEYOND_CAPACITY", "m_values")
    yield case("weights of another shape", lambda w: w.new(
        "ExecuteRequest", plan=w.plan, weights="other", inline_operands=w.inline()), "SHAPES_DIFFER", None, ORDER)
    yield case("weights unknown", lambda w: w.new(
        "ExecuteRequest", plan=w.plan, weights="nobody", inline_operands=w.inline()), "WEIGHTS_NOT_FOUND", None, MISSING)
    yield case("priority unknown", lambda w: w.execute(priority=4), ENUM, "priority")
    yield case("priority negative", lambda w: w.execute(priority=-1), ENUM, "priority")
    for what, text in ODD_TEXTS[1:]:
        yield case("plan " + what, lambda w, text=text: w.new(
            "ExecuteRequest", plan=text, inline_operands=w.inline()), FORM, "plan")
    yield case("more rows than a reply holds", lambda w: w.execute(
        w.signature(exact=w.new("RowCounts", m=[2**31 - 1, 1]))), None, None)


def block_cases():
    def case(name, make, reason, field, code=BAD):
        return ("blocks: " + name, "Gemm/Execute", make, code, reason, field)

    yield case("no activations", lambda w: w.blocks_of(activations=None), ABSENT, "activations")
    yield case("no output", lambda w: w.blocks_of(output=None), ABSENT, "output")
    yield case("scales of BF16 activations", lambda w: w.blocks_of(activation_scales=w.range(2)),
               CONFLICT, "activation_scales")
    yield case("negative offset", lambda w: w.blocks_of(output=w.range(1, offset=-16)), RANGE, "output")
    yield case("crooked offset", lambda w: w.blocks_of(output=w.range(1, offset=8, size=4080)), RANGE, "output")
    yield case("too few bytes", lambda w: w.blocks_of(output=w.range(1, size=16)), SIZE, "output")
    yield case("negative bytes", lambda w: w.blocks_of(output=w.range(1, size=-1)), RANGE, "output")
    yield case("beyond the block", lambda w: w.blocks_of(output=w.range(1, offset=4096)), RANGE, "output")
    yield case("offset that wraps", lambda w: w.blocks_of(output=w.range(1, offset=2**63 - 16)), RANGE, "output")
    yield case("output over activations", lambda w: w.blocks_of(output=w.range(0)), OVERLAP, "output")
    yield case("counts nobody asked for", lambda w: w.blocks_of(m_values_block=w.range(2)), CONFLICT, "m_values")
    yield case("row scales nobody asked for", lambda w: w.blocks_of(row_scale_block=w.range(2)), CONFLICT, "row_scale")
    yield case("alpha for one group of two", lambda w: w.blocks_of(alpha=[1.0]), SIZE, "alpha")
    for what, text in ODD_TEXTS:
        yield case("block " + what, lambda w, text=text: w.blocks_of(output=w.range(text)),
                   ABSENT if text == "" else FORM, "output")


def upload_cases():
    def case(name, make, reason, field, code=BAD):
        return ("upload: " + name, "Weights/Upload", make, code, reason, field)

    yield case("nothing", lambda w: [], ABSENT, "header")
    yield case("an empty message", lambda w: [w.new("UploadRequest")], ABSENT, "message")
    yield case("a chunk first", lambda w: [w.chunk(1, b"x")], CONFLICT, "chunk")
    yield case("two headers", lambda w: [w.header(), w.header()], CONFLICT, "header")
    for what, text in ODD_TEXTS:
        if what != "path":
            yield case("name " + what, lambda w, text=text: w.upload(w.header(name=text)), FORM, "name")
    yield case("name with a version", lambda w: w.upload(w.header(name="a@1")), FORM, "name")
    yield case("no groups", lambda w: w.upload(w.header(groups=[], group_count=0)), None, "groups")
    yield case("a count without dims", lambda w: w.upload(w.header(groups=[])), CONFLICT, "group_count")
    yield case("a count and two dims", lambda w: w.upload(
        w.header(groups=[w.new("GroupDims", n=N, k=K)] * 2)), None, "group")
    yield case("a negative count", lambda w: w.upload(w.header(group_count=-1)), RANGE, "group_count")
    yield case("a huge count", lambda w: w.upload(w.header(group_count=2**31 - 1)), None, "group")
    for n, k, field in ((0, K, "n"), (-1, K, "n"), (N, 0, "k"), (N, -32, "k"), (N, 16, "k"), (N, 33, "k")):
        yield case(f"n={n} k={k}", lambda w, n=n, k=k: w.dims(n, k), RANGE, field)
    yield case("dims beyond all memory", lambda w: w.dims(2**31 - 1, 2**31 - 32), None, None)
    yield case("scale layout unknown", lambda w: w.upload(w.header(scale_layout=3)), ENUM, "scale_layout")
    yield case("alpha for one group of two", lambda w: w.upload(w.header(alpha=[1.0])), SIZE, "alpha")
    yield case("alpha NaN", lambda w: w.upload(w.header(alpha=[1.0, NAN])), RANGE, "alpha")
    for what, text in ODD_TEXTS[1:]:
        if what != "path":
            yield case("key " + what, lambda w, text=text: w.upload(w.header(upload_key=text)), FORM, "upload_key")
    yield case("operand missing", lambda w: [w.header(), w.chunk(0, b"x")], ABSENT, "operand")
    yield case("operand unknown", lambda w: [w.header(), w.chunk(3, b"x")], ENUM, "operand")
    yield case("negative offset", lambda w: [w.header(), w.chunk(1, b"x", -1)], RANGE, "chunk.offset")
    yield case("beyond the operand", lambda w: [w.header(), w.chunk(1, b"x", CODES)], RANGE, "chunk.offset")
    yield case("offset that wraps", lambda w: [w.header(), w.chunk(1, b"xx", 2**63 - 1)], RANGE, "chunk.offset")
    yield case("bytes twice", lambda w: [w.header(), w.chunk(1, b"xx"), w.chunk(1, b"x", 1)], OVERLAP, "chunk")
    yield case("codes missing", lambda w: w.upload(codes=ONE_CODES * (CODES - 1)), "WEIGHTS_INCOMPLETE", "codes", ORDER)
    yield case("scales missing", lambda w: w.upload()[:2], "WEIGHTS_INCOMPLETE", "scales", ORDER)
    for what, byte in (("negative", b"\xb8"), ("NaN", b"\x7f")):
        yield case(f"a {what} scale", lambda w, byte=byte: w.upload(scales=ONE_SCALE * (SCALES - 1) + byte),
                   "ILLEGAL_SCALE", "chunk.data")


def other_weights_cases():
    def case(name, method, make, reason, field, code=BAD):
        return (f"{method.split('/')[1].lower()}: {name}", method, make, code, reason, field)

    for what, text in ODD_TEXTS:
        if what != "path":
            yield case(what, "Weights/Drop", lambda w, text=text: w.new("DropRequest", weights=text),
                       ABSENT if text == "" else FORM, "weights")
    yield case("unknown", "Weights/Drop", lambda w: w.new("DropRequest", weights="nobody"),
               "WEIGHTS_NOT_FOUND", None, MISSING)
    yield case("nothing", "Weights/Seal", lambda w: w.new("SealRequest"), ABSENT, "name")
    yield case("unknown", "Weights/Seal", lambda w: w.new("SealRequest", name="nobody", version=1),
               "WEIGHTS_NOT_FOUND", None, MISSING)
    yield case("version 0", "Weights/Seal", lambda w: w.new("SealRequest", name="good"), "WEIGHTS_NOT_FOUND", None, MISSING)
    yield case("incomplete", "Weights/Seal", lambda w: w.new("SealRequest", name="unsealed", version=w.unsealed),
               "WEIGHTS_INCOMPLETE", None, ORDER)
    yield case("unknown", "Weights/GetUpload", lambda w: w.new(
        "GetUploadRequest", name="nobody", upload_key="key"), "UPLOAD_NOT_FOUND", None, MISSING)
    yield case("without key", "Weights/GetUpload", lambda w: w.new("GetUploadRequest", name="good"), FORM, "upload_key")

    def load(**fields):
        return lambda w: w.new("LoadRequest", **{"name": "l", "directory": "modelopt", "pattern": "x", **fields})

    yield case("without name", "Weights/Load", load(name=""), ABSENT, "name")
    yield case("without pattern", "Weights/Load", load(pattern=""), ABSENT, "pattern")
    yield case("no such folder", "Weights/Load", load(directory="nowhere"), "FILE_NOT_FOUND", None, MISSING)
    yield case("no such tensor", "Weights/Load", load(pattern="no.such.tensor"), None, None, None)
    yield case("unknown dialect", "Weights/Load", load(dialect=3), ENUM, "dialect")
    for path in ("..", "../..", "/etc", "modelopt/../../..", "a\0b"):
        yield case(f"folder {path!r}", "Weights/Load", load(directory=path), FORM, "directory")


def memory_cases():
    def case(name, method, make, reason, field, code=BAD):
        return (f"{method.split('/')[1].lower()}: {name}", "Memory/" + method.split("/")[1], make, code, reason, field)

    texts = [(what, text) for what, text in ODD_TEXTS if text]
    for what, text in texts[:5]:
        yield case("lease " + what, "Memory/Attach", lambda w, text=text: w.new("AttachRequest", resume=text), FORM, "resume")
        yield case("lease " + what, "Memory/Detach", lambda w, text=text: w.new("DetachRequest", lease=text), FORM, "lease")
        yield case("lease " + what, "Memory/Allocate", lambda w, text=text: w.new(
            "AllocateRequest", lease=text, bytes=1), FORM, "lease")
        yield case("block " + what, "Memory/Free", lambda w, text=text: w.new("FreeRequest", block=text), FORM, "block")
        yield case("lease " + what, "Memory/List", lambda w, text=text: w.new("ListBlocksRequest", lease=text), FORM, "lease")
        yield case("block " + what, "Memory/Read", lambda w, text=text: w.new("ReadRequest", block=text), FORM, "block")
    # Field 2047, which no schema has: what a daemon would have to keep for days.
    yield case("a request of 5000 bytes", "Memory/Attach", lambda w: type(w.new("AttachRequest")).FromString(
        b"\xfa\x7f\x88\x27" + bytes(5000)), "MESSAGE_TOO_LARGE", "request")
    for bytes_ in (0, -1):
        yield case(f"{bytes_} bytes", "Memory/Allocate", lambda w, b=bytes_: w.new(
            "AllocateRequest", lease=w.lease, bytes=b), RANGE, "bytes")
    yield case("more than there is", "Memory/Allocate", lambda w: w.new(
        "AllocateRequest", lease=w.lease, bytes=2**62), None, None, None)
    yield case("negative offset", "Memory/Read", lambda w: w.new("ReadRequest", block=w.blocks[0], offset=-1), RANGE, "offset")
    yield case("beyond the block", "Memory/Read", lambda w: w.new(
        "ReadRequest", block=w.blocks[0], offset=4096, bytes=1), RANGE, None)
    yield case("wrapping", "Memory/Read", lambda w: w.new(
        "ReadRequest", block=w.blocks[0], offset=16, bytes=2**63 - 1), RANGE, None)
    yield case("nothing", "Memory/Write", lambda w: [], ABSENT, "block")
    yield case("negative offset", "Memory/Write", lambda w: [w.new(
        "WriteRequest", block=w.blocks[0], offset=-1, data=b"x")], RANGE, "offset")
    yield case("beyond the block", "Memory/Write", lambda w: [w.new(
        "WriteRequest", block=w.blocks[0], offset=4095, data=b"xx")], RANGE, None)
    yield case("another block on the way", "Memory/Write", lambda w: [
        w.new("WriteRequest", block=w.blocks[0], data=b"x"), w.new("WriteRequest", block=w.blocks[1], data=b"x")],
        CONFLICT, "block")
    yield case("unknown key", "Memory/GetWrite", lambda w: w.new(
        "GetWriteRequest", block=w.blocks[0], write_key="never"), "UPLOAD_NOT_FOUND", None, MISSING)


def ticket_cases():
    def case(name, method, make, reason, field, code=BAD):
        return (f"{method.split('/')[1].lower()}: {name}", method, make, code, reason, field)

    yield case("nothing", "Gemm/Submit", lambda w: w.new("SubmitRequest"), ABSENT, "execute")
    for what, text in ODD_TEXTS[1:]:
        if what != "path":
            yield case("key " + what, "Gemm/Submit", lambda w, text=text: w.new(
                "SubmitRequest", execute=w.execute(), idempotency_key=text), FORM, "idempotency_key")
    for seconds in (-1.0, NAN, INF):
        yield case(f"timeout {seconds}", "Gemm/Submit", lambda w, s=seconds: w.new(
            "SubmitRequest", execute=w.execute(), timeout_seconds=s), RANGE, "timeout_seconds")
        yield case(f"keep {seconds}", "Gemm/Submit", lambda w, s=seconds: w.new(
            "SubmitRequest", execute=w.execute(), keep_seconds=s), RANGE, "keep_seconds")
        yield case(f"timeout {seconds}", "Gemm/Wait", lambda w, s=seconds: w.new(
            "WaitRequest", ticket=w.ticket, timeout_seconds=s), RANGE, "timeout_seconds")
    yield case("another request under a key", "Gemm/Submit", lambda w: w.new(
        "SubmitRequest", execute=w.execute(inline_operands=w.inline(alpha=[3.0, 3.0])), idempotency_key="taken"),
        "KEY_REUSED", None, EXISTS)
    yield case("an execute that is refused", "Gemm/Submit", lambda w: w.new(
        "SubmitRequest", execute=w.execute(inline_operands=w.inline(activations=b""))), SIZE, "activations")
    yield case("unknown", "Gemm/Wait", lambda w: w.new("WaitRequest", ticket=w.no_ticket), "TICKET_NOT_FOUND", None, MISSING)
    yield case("unknown", "Gemm/Cancel", lambda w: w.new("CancelRequest", ticket=w.no_ticket), "TICKET_NOT_FOUND", None, MISSING)
    yield case("no tickets", "Gemm/Watch", lambda w: w.new("WatchRequest"), RANGE, "tickets")
    yield case("plan newline", "Gemm/Release", lambda w: w.new("ReleaseRequest", plan="a\nb"), FORM, "plan")
    for what, text in ODD_TEXTS:
        yield case("ticket " + what, "Gemm/Wait", lambda w, text=text: w.new("WaitRequest", ticket=text), FORM, "ticket")
    yield case("level unknown", "Admin/SetLogLevel", lambda w: w.new("SetLogLevelRequest", level="loud"), None, "level")
    yield case("lease newline", "Admin/EndLease", lambda w: w.new("EndLeaseRequest", lease="a\nb"), FORM, "lease")


def all_cases():
    cases = [*prepare_cases(), *execute_cases(), *block_cases(), *upload_cases(), *other_weights_cases(),
             *memory_cases(), *ticket_cases()]
    names = [case[0] for case in cases]
    assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)
    return cases
