#include "config/hf/rope_dictionary.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "phasor/config/internal/spec_json.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::config {
namespace {

using encodings::FieldPlace;
using encodings::FieldType;
using encodings::FieldValue;
using encodings::RopeScaling;
using encodings::ScalingType;
using encodings::WhenMissing;
using ScalingField = encodings::Field<RopeScaling>;

constexpr std::string_view kFactor = "factor";
constexpr std::string_view kLengthField = "original_length";
constexpr std::string_view kOriginal = "original_max_position_embeddings";

constexpr std::string_view kAxial = "axial";
constexpr std::string_view kFinetuned = "finetuned";

[[nodiscard]] std::int64_t original_length(const ObjectReader& reader, const Lengths& lengths) {
  std::optional<std::int64_t> length = reader.integer(kOriginal);
  if (lengths.original) length = lengths.original;
  if (!length) length = lengths.max_position;
  if (!length) {
    reader.refuse(kOriginal,
                  "missing key; max_position_embeddings, which could replace it, is missing too");
  }
  if (*length <= 0) reader.refuse(kOriginal, message("must be positive, got ", *length));
  return *length;
}

// A scaling from the keys of a dictionary, as its type's fields describe them.
class DictionaryReader {
 public:
  DictionaryReader(const ObjectReader& reader, const ScalingType& type, const Lengths& lengths)
      : reader_(reader), type_(type), lengths_(lengths), scaling_(type.make()) {}

  [[nodiscard]] RopeScaling read() {
    for (const ScalingField& field : type_.fields) {
      if (field.name != kLengthField) read_field(field);
    }
    for (const ScalingField& field : type_.fields) {
      if (field.name == kLengthField) read_length(field);
    }
    for (const ScalingField& field : type_.fields) {
      if (!reader_.has(field.key)) derive_from_lengths(field);
    }
    return std::move(scaling_);
  }

 private:
  [[nodiscard]] bool is_required(const ScalingField& field) const {
    return field.unless.empty() || !reader_.has(field.unless);
  }

  void read_field(const ScalingField& field) {
    const FieldValue value = read_value(reader_, field);
    if (!std::holds_alternative<std::monostate>(value)) {
      field.set(scaling_, value);
    } else if (field.missing == WhenMissing::error && is_required(field)) {
      reader_.refuse(field.key, message("missing key, which type ", type_.name, " needs"));
    }
  }

  void read_length(const ScalingField& field) {
    if (!is_required(field)) {
      static_cast<void>(reader_.integer(kOriginal));
      return;
    }
    if (field.missing == WhenMissing::error && !reader_.has(kOriginal) && !lengths_.original)
      reader_.refuse(kOriginal, message("missing key, which type ", type_.name, " needs"));
    std::int64_t length = original_length(reader_, lengths_);
    // Hugging Face allows the dictionary to name an original length, and ignores it.
    if (field.place == FieldPlace::outside) length = lengths_.max_position.value_or(length);
    field.set(scaling_, length);
  }

  void derive_from_lengths(const ScalingField& field) {
    if (field.missing == WhenMissing::null_means_ratio && !reader_.has_even_null(field.key))
      reader_.refuse(field.key, "missing key; null means max / original length");
    if (field.missing != WhenMissing::length_ratio &&
        field.missing != WhenMissing::null_means_ratio)
      return;
    if (lengths_.max_position) {
      field.set(scaling_, static_cast<double>(*lengths_.max_position) /
                              static_cast<double>(*encodings::original_length(scaling_)));
    } else if (!has_own_amplitude()) {
      reader_.refuse(
          field.key,
          "missing key; max_position_embeddings, which could replace it, is missing too");
    }
  }

  // LongRoPE needs its factor for the amplitude alone.
  [[nodiscard]] bool has_own_amplitude() const {
    const auto* const longrope = std::get_if<encodings::LongRopeScaling>(&scaling_);
    return longrope != nullptr &&
           (longrope->attention_factor || (longrope->short_mscale && longrope->long_mscale));
  }

  const ObjectReader& reader_;
  const ScalingType& type_;
  const Lengths& lengths_;
  RopeScaling scaling_;
};

// Keys that were read and do not change any number.
[[nodiscard]] std::vector<KeyNote> idle_keys(const ObjectReader& reader, const RopeScaling& scaling,
                                             const Lengths& lengths) {
  std::vector<KeyNote> notes;
  const auto note = [&](std::string_view key, std::string text) {
    if (reader.has(key)) notes.push_back({reader.path_of(key), std::move(text)});
  };
  if (lengths.original && reader.integer(kOriginal) &&
      reader.integer(kOriginal) != lengths.original) {
    note(kOriginal, message("overridden by the top-level ", kOriginal, " ", *lengths.original));
  }
  if (const auto* dynamic = std::get_if<encodings::DynamicScaling>(&scaling)) {
    if (dynamic->alpha) note(kFactor, "not used together with alpha");
    note(kOriginal, dynamic->alpha ? "not used together with alpha"
                                   : "not used: the length is measured against "
                                     "max_position_embeddings, as Hugging Face does");
  }
  if (const auto* yarn = std::get_if<encodings::YarnScaling>(&scaling)) {
    if (reader.flag(kFinetuned)) note(kFinetuned, "describes the training; changes nothing");
    const bool both = yarn->mscale != 0.0 && yarn->mscale_all_dim != 0.0;
    for (const std::string_view key : {"mscale", "mscale_all_dim"}) {
      if (yarn->attention_factor) {
        note(key, "does not reach the amplitude: attention_factor overrides it");
      } else if (!both) {
        note(key, "does not reach the amplitude: it needs both mscale and mscale_all_dim");
      }
    }
  }
  if (const auto* longrope = std::get_if<encodings::LongRopeScaling>(&scaling)) {
    if (longrope->attention_factor) {
      note(kFactor, "not used: attention_factor gives the amplitude");
      for (const std::string_view key : {"short_mscale", "long_mscale"}) {
        note(key, "not used: attention_factor gives the amplitude");
      }
    }
  }
  return notes;
}

// Old names: su became longrope; mrope is default frequencies read by three rows of positions, and xdrope
// those of dynamic scaling with a fixed alpha, read by four (HunYuan-VL).
[[nodiscard]] std::string_view current_name(std::string_view name) {
  if (name == "su") return "longrope";
  if (name == "xdrope") return "dynamic";
  return name == "mrope" ? "default" : name;
}

[[nodiscard]] std::vector<std::string_view> type_names(DictionaryForm form) {
  std::vector<std::string_view> names;
  for (const ScalingType* type : encodings::scaling_types()) names.push_back(type->name);
  // A plain spec has a key of its own for axial.
  if (form != DictionaryForm::plain_scaling) names.insert(names.begin() + 1, kAxial);
  return names;
}

// The type's current name.
[[nodiscard]] std::string read_type_name(const ObjectReader& reader, DictionaryForm form) {
  const std::optional<std::string> old_key = reader.text("type");
  const std::optional<std::string> new_key = reader.text("rope_type");
  if (old_key && new_key && current_name(*old_key) != current_name(*new_key)) {
    reader.refuse("type", message("must be the same as rope_type \"", *new_key, "\", got \"",
                                  *old_key, "\""));
  }
  const std::vector<std::string_view> names = type_names(form);
  if (!old_key && !new_key) {
    if (form == DictionaryForm::rope_parameters) return std::string(names.front());
    reader.refuse("rope_type", message("missing key: one of ", core::list_text(names)));
  }
  const std::string given = new_key ? *new_key : *old_key;
  const std::string_view name = current_name(given);
  if (!encodings::choice_of(names, name)) {
    reader.refuse(new_key ? "rope_type" : "type",
                  message("must be one of ", core::list_text(names), ", got \"", given, "\"",
                          core::did_you_mean(given, names)));
  }
  return std::string(name);
}

// The types whose formula reads a key, as text; empty: none does.
[[nodiscard]] std::string readers_of(std::string_view key) {
  std::vector<std::string_view> names;
  for (const ScalingType* type : encodings::scaling_types()) {
    const std::vector<std::string_view> keys = keys_of(type->fields);
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) names.push_back(type->name);
  }
  return core::list_text(names);
}

[[noreturn]] void refuse_key(const ObjectReader& reader, const std::string& key,
                             const RopeScaling& scaling, std::string_view type,
                             DictionaryForm form) {
  const bool plain = form == DictionaryForm::plain_scaling;
  std::vector<std::string_view> known = keys_of(encodings::type_of(scaling).fields);
  if (plain) {
    known.push_back("type");
  } else {
    known.insert(known.end(), {"rope_type", "rope_theta"});
    if (type != "proportional")
      known.insert(known.end(), {"partial_rotary_factor", "mrope_section", "mrope_interleaved"});
  }
  std::string hint = core::did_you_mean(key, known);
  if (hint.empty() && !plain) {
    std::vector<std::string_view> elsewhere;
    for (const ScalingType* other : encodings::scaling_types()) {
      const std::vector<std::string_view> keys = keys_of(other->fields);
      elsewhere.insert(elsewhere.end(), keys.begin(), keys.end());
    }
    hint = core::did_you_mean(key, elsewhere);
  }
  if (key == "attn_factor") hint = "; did you mean \"attention_factor\"?";
  if (key == "ext_factor") hint = "; did you mean \"extrapolation_factor\"?";
  if (plain && key == "rope_theta") hint = "; a plain spec has \"base\" outside scaling";
  if (plain && key == "partial_rotary_factor")
    hint = "; a plain spec has \"rotary_dim\" outside scaling";
  if (plain && key == "mrope_section") hint = "; a plain spec has \"mrope\" outside scaling";
  if (hint.empty()) hint = message("; known keys: ", core::list_text(known));
  reader.refuse(key, message("unknown key \"", key, "\" for type ", type, hint));
}

}  // namespace

RopeDictionary read_rope_dictionary(const ObjectReader& reader, DictionaryForm form,
                                    const Lengths& lengths) {
  const std::string name = read_type_name(reader, form);
  RopeDictionary dictionary;
  dictionary.axial = name == kAxial;
  const ScalingType& type =
      dictionary.axial ? *encodings::scaling_types().front() : *encodings::find_scaling_type(name);
  dictionary.scaling = DictionaryReader(reader, type, lengths).read();
  dictionary.notes = idle_keys(reader, dictionary.scaling, lengths);
  for (const std::string_view key : {"type", "rope_type"}) {
    if (const std::optional<std::string> given = reader.text(key)) {
      dictionary.type_key = reader.path_of(key);
      if (current_name(*given) != *given) {
        dictionary.notes.push_back(
            {dictionary.type_key,
             message("\"", *given, "\" is the old name of ", current_name(*given))});
      }
    }
  }
  if (form != DictionaryForm::plain_scaling) {
    dictionary.base = reader.number("rope_theta");
    dictionary.partial = reader.number("partial_rotary_factor");
    if (name != "proportional" && !dictionary.axial) {
      dictionary.mrope_sections = reader.integers("mrope_section");
      const std::optional<std::vector<std::int64_t>> old_sections =
          reader.integers("xdrope_section");
      if (old_sections && dictionary.mrope_sections &&
          *old_sections != *dictionary.mrope_sections) {
        reader.refuse("xdrope_section", message("must be equal to mrope_section, got ",
                                                shown(reader.value("xdrope_section"))));
      }
      if (old_sections) dictionary.mrope_sections = old_sections;
      dictionary.mrope_interleaved = reader.flag("mrope_interleaved");
    }
    dictionary.query_beta = reader.number("llama_4_scaling_beta");
    if (dictionary.query_beta) dictionary.query_length = original_length(reader, lengths);
    // Ministral 3 repeats the length of the top level.
    static_cast<void>(reader.integer("max_position_embeddings"));
    const auto old_type = reader.text("type");
    if (old_type && *old_type == "mrope" && !dictionary.mrope_sections) {
      reader.refuse("mrope_section", "missing key: type mrope needs three integers");
    }
    if (dictionary.mrope_interleaved.value_or(false) && !dictionary.mrope_sections) {
      reader.refuse("mrope_section", "missing key: mrope_interleaved needs three integers");
    }
  }
  for (const std::string& key : reader.keys_not_understood()) {
    // A plain spec is written for Phasor alone: there, such a key is a mistake.
    const std::string readers =
        form == DictionaryForm::plain_scaling ? std::string() : readers_of(key);
    if (readers.empty()) refuse_key(reader, key, dictionary.scaling, name, form);
    if (reader.value(key).is_null()) continue;
    dictionary.notes.push_back({reader.path_of(key),
                                message("a key of ", readers, "; type ", name, " does not read it"),
                                true});
  }
  return dictionary;
}

}  // namespace phasor::config
