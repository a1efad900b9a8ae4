// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/safetensors_header.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/json_events.h"
#include "engine/checkpoint/printable.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

using Kind = JsonEvent::Kind;

constexpr std::string_view kMetadata = "__metadata__";

// No framework has tensors of more dimensions; keeps "[1,1,1,...]" from costing more memory
// than its text.
constexpr uint32_t kMaxRank = 32;

template <typename... Args>
absl::Status Invalid(const Args&... args) {
  return ReasonError(Reason::kIllegalCheckpoint, absl::StrCat(args...));
}

std::string Tensor(std::string_view name) { return absl::StrCat("tensor `", Printable(name), "`"); }

std::string_view Describe(Kind kind) {
  switch (kind) {
    case Kind::kBeginObject:
    case Kind::kEndObject:
      return "an object";
    case Kind::kBeginArray:
    case Kind::kEndArray:
      return "an array";
    case Kind::kKey:
    case Kind::kString:
      return "a string";
    case Kind::kUnsigned:
      return "a number";
    case Kind::kOtherNumber:
      return "a negative, fractional or too large number";
    case Kind::kBoolOrNull:
      return "true, false or null";
  }
  return "";
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

// Consumes the events of the header's JSON. Its state is where it is in the fixed three levels:
// { name : { field : value } }, with values of unknown fields passed over as the format's own
// reader does.
class SafetensorsHeaderParser {
 public:
  explicit SafetensorsHeaderParser(uint64_t data_bytes) : data_bytes_(data_bytes) {}

  absl::StatusOr<SafetensorsHeader> Parse(std::string_view json) {
    if (json.empty() || json.front() != '{') {
      return Invalid("header does not start with '{'");
    }
    bool refused = false;  // by this class, which names the tensor itself
    const absl::Status parsed = ParseJson(json, [&](const JsonEvent& event) {
      absl::Status status = On(event);
      refused = !status.ok();
      return status;
    });
    if (!parsed.ok()) {
      if (refused || !in_tensor_) return parsed;
      return WithMessage(parsed, absl::StrCat(parsed.message(), ", in ", CurrentTensor()));
    }
    TETRAD_RETURN_IF_ERROR(CheckNames());
    TETRAD_RETURN_IF_ERROR(CheckLayout());
    return std::move(header_);
  }

 private:
  using Entry = SafetensorsHeader::Entry;
  enum class Field : uint8_t { kUnknown, kDtype, kShape, kOffsets };

  std::string CurrentTensor() const { return Tensor(header_.NameOf(entry_)); }

  absl::Status On(const JsonEvent& event) {
    switch (event.depth) {
      case 0:  // the object itself: the first byte is '{'
        return absl::OkStatus();
      case 1:
        return OnTop(event);
      default:
        return in_metadata_ ? OnMetadata(event) : OnTensor(event);
    }
  }

  absl::Status OnTop(const JsonEvent& event) {
    switch (event.kind) {
      case Kind::kKey:
        in_metadata_ = event.text == kMetadata;
        in_tensor_ = !in_metadata_;
        if (in_metadata_ && std::exchange(metadata_seen_, true)) {
          return Invalid("`__metadata__` appears twice");
        }
        if (in_tensor_) BeginEntry(event.text);
        return absl::OkStatus();
      case Kind::kBeginObject:
        return absl::OkStatus();
      case Kind::kEndObject:
        return std::exchange(in_tensor_, false) ? EndEntry() : absl::OkStatus();
      default:
        return Invalid(in_metadata_ ? "`__metadata__`" : CurrentTensor(), " is ",
                       View(Describe(event.kind)), " where an object was expected");
    }
  }

  absl::Status OnMetadata(const JsonEvent& event) {
    if (event.kind == Kind::kKey) {
      metadata_key_ = Printable(event.text);
      return absl::OkStatus();
    }
    if (event.kind == Kind::kString) return absl::OkStatus();
    return Invalid("`__metadata__` value of `", metadata_key_, "` is ", View(Describe(event.kind)),
                   "; only strings are allowed");
  }

  void BeginEntry(std::string_view name) {
    entry_ = Entry{};
    entry_.name_begin = static_cast<uint32_t>(header_.names_.size());
    entry_.name_bytes = static_cast<uint32_t>(name.size());
    entry_.shape_begin = static_cast<uint32_t>(header_.shapes_.size());
    header_.names_ += name;
    has_dtype_ = has_shape_ = has_offsets_ = false;
    offsets_read_ = 0;
  }

  absl::Status OnTensor(const JsonEvent& event) {
    if (event.depth == 2) {
      if (event.kind == Kind::kKey) return BeginField(event.text);
      if (event.kind == Kind::kEndArray) return absl::OkStatus();
    }
    const bool in_array = event.depth == 3;
    switch (field_) {
      case Field::kUnknown:
        return absl::OkStatus();
      case Field::kDtype:
        if (event.depth == 2 && event.kind == Kind::kString) return SetDtype(event.text);
        return Unexpected("dtype", event.kind, "a string");
      case Field::kShape:
        if (!in_array && event.kind == Kind::kBeginArray) return absl::OkStatus();
        if (!in_array) return Unexpected("shape", event.kind, "an array");
        if (event.kind == Kind::kUnsigned) return AddDimension(event.number);
        return Unexpected("shape", event.kind, "a non-negative integer");
      case Field::kOffsets:
        if (!in_array && event.kind == Kind::kBeginArray) return absl::OkStatus();
        if (!in_array) return Unexpected("data_offsets", event.kind, "an array");
        if (event.kind == Kind::kUnsigned) return AddOffset(event.number);
        return Unexpected("data_offsets", event.kind, "a non-negative integer");
    }
    return absl::OkStatus();
  }

  absl::Status Unexpected(absl::string_view field, Kind found, absl::string_view wanted) const {
    return Invalid(CurrentTensor(), ": ", field, " has ", View(Describe(found)), " where ", wanted,
                   " was expected");
  }

  absl::Status BeginField(std::string_view name) {
    bool* seen = nullptr;
    field_ = Field::kUnknown;
    if (name == "dtype") field_ = Field::kDtype, seen = &has_dtype_;
    if (name == "shape") field_ = Field::kShape, seen = &has_shape_;
    if (name == "data_offsets") field_ = Field::kOffsets, seen = &has_offsets_;
    if (seen != nullptr && std::exchange(*seen, true)) {
      return Invalid(CurrentTensor(), ": ", View(name), " appears twice");
    }
    return absl::OkStatus();
  }

  absl::Status SetDtype(std::string_view name) {
    const std::optional<Dtype> dtype = ParseDtype(name);
    if (!dtype) return Invalid(CurrentTensor(), ": unknown dtype `", Printable(name, 40), "`");
    entry_.dtype = *dtype;
    return absl::OkStatus();
  }

  absl::Status AddDimension(uint64_t dimension) {
    if (entry_.rank == kMaxRank) {
      return Invalid(CurrentTensor(), ": more than ", kMaxRank, " dimensions");
    }
    header_.shapes_.push_back(dimension);
    ++entry_.rank;
    return absl::OkStatus();
  }

  absl::Status AddOffset(uint64_t offset) {
    if (offsets_read_ == 2) return WrongOffsetCount();
    (offsets_read_++ == 0 ? entry_.begin : entry_.end) = offset;
    return absl::OkStatus();
  }

  absl::Status WrongOffsetCount() const {
    return Invalid(CurrentTensor(), ": data_offsets must be two numbers");
  }

  absl::Status EndEntry() {
    if (!has_dtype_) return Invalid(CurrentTensor(), ": dtype is missing");
    if (!has_shape_) return Invalid(CurrentTensor(), ": shape is missing");
    if (!has_offsets_) return Invalid(CurrentTensor(), ": data_offsets is missing");
    if (offsets_read_ != 2) return WrongOffsetCount();
    if (entry_.begin > entry_.end) {
      return Invalid(CurrentTensor(), ": data_offsets [", entry_.begin, ", ", entry_.end,
                     "] run backwards");
    }
    if (entry_.end > data_bytes_) {
      return Invalid(CurrentTensor(), ": ends at byte ", entry_.end,
                     " of the data, but the file has ", data_bytes_, "; truncated?");
    }
    const std::span shape(header_.shapes_.data() + entry_.shape_begin, entry_.rank);
    uint64_t elements = 1;
    bool overflow = false;
    for (const uint64_t dimension : shape) {
      overflow |= __builtin_mul_overflow(elements, dimension, &elements);
    }
    uint64_t bits = 0;
    overflow |= __builtin_mul_overflow(elements, uint64_t(DtypeBits(entry_.dtype)), &bits);
    if (overflow) {
      return Invalid(CurrentTensor(), ": shape ", ShapeText(shape), " overflows 64 bits");
    }
    if (bits % 8 != 0) {
      return Invalid(CurrentTensor(), ": shape ", ShapeText(shape), " of ",
                     View(DtypeName(entry_.dtype)), " does not fill whole bytes");
    }
    if (bits / 8 != entry_.end - entry_.begin) {
      return Invalid(CurrentTensor(), ": shape ", ShapeText(shape), " of ",
                     View(DtypeName(entry_.dtype)), " needs ", bits / 8,
                     " bytes, data_offsets give ", entry_.end - entry_.begin);
    }
    header_.entries_.push_back(entry_);
    return absl::OkStatus();
  }

  // Sorts by name and refuses a name that comes twice.
  absl::Status CheckNames() {
    auto& entries = header_.entries_;
    const auto name_of = [this](const Entry& e) { return header_.NameOf(e); };
    std::ranges::sort(entries, {}, name_of);
    const auto twin = std::ranges::adjacent_find(entries, {}, name_of);
    if (twin == entries.end()) return absl::OkStatus();
    return Invalid(Tensor(name_of(*twin)), " appears twice");
  }

  // The tensors must cover the data exactly: no overlap, no hole, nothing after the last.
  absl::Status CheckLayout() const {
    const auto& entries = header_.entries_;
    std::vector<uint32_t> order(entries.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {},
                      [&](uint32_t i) { return std::pair(entries[i].begin, entries[i].end); });
    const auto name = [&](uint32_t i) { return Tensor(header_.NameOf(entries[i])); };
    uint64_t covered = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const Entry& entry = entries[order[i]];
      if (entry.begin < covered) {
        return Invalid(name(order[i]), " starts at byte ", entry.begin,
                       " of the data and overlaps ", name(order[i - 1]), ", which ends at ",
                       covered);
      }
      if (entry.begin > covered) {
        return Invalid("hole of ", entry.begin - covered, " bytes in the data before ",
                       name(order[i]));
      }
      covered = entry.end;
    }
    if (covered == data_bytes_) return absl::OkStatus();
    return Invalid(data_bytes_ - covered, " bytes after the last tensor",
                   order.empty() ? "" : absl::StrCat(", ", name(order.back())));
  }

  const uint64_t data_bytes_;
  SafetensorsHeader header_;
  Entry entry_{};
  Field field_ = Field::kUnknown;
  int offsets_read_ = 0;
  bool in_tensor_ = false;
  bool in_metadata_ = false;
  bool metadata_seen_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  std::string metadata_key_;
};

std::string ShapeText(std::span<const uint64_t> shape) {
  constexpr size_t kSpelledOut = 8;
  std::string text = "[";
  for (size_t i = 0; i < std::min(shape.size(), kSpelledOut); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", shape[i]);
  }
  if (shape.size() > kSpelledOut) absl::StrAppend(&text, ", ... ", shape.size(), " dimensions");
  return text + "]";
}

absl::StatusOr<SafetensorsHeader> SafetensorsHeader::Parse(std::string_view json,
                                                           uint64_t data_bytes) {
  return SafetensorsHeaderParser(data_bytes).Parse(json);
}

std::string_view SafetensorsHeader::NameOf(const Entry& entry) const {
  return std::string_view(names_).substr(entry.name_begin, entry.name_bytes);
}

TensorInfo SafetensorsHeader::tensor(size_t index) const {
  const Entry& entry = entries_[index];
  return {NameOf(entry), entry.dtype, std::span(shapes_.data() + entry.shape_begin, entry.rank),
          entry.begin, entry.end};
}

std::optional<TensorInfo> SafetensorsHeader::Find(std::string_view name) const {
  const auto at =
      std::ranges::lower_bound(entries_, name, {}, [this](const Entry& e) { return NameOf(e); });
  if (at == entries_.end() || NameOf(*at) != name) return std::nullopt;
  return tensor(static_cast<size_t>(at - entries_.begin()));
}

}  // namespace tetrad
