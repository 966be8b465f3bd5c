#include "config/hf/rope_dictionary.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace phasor::config {
namespace {

using encodings::RopeScaling;

constexpr std::string_view kFactor = "factor";
constexpr std::string_view kOriginal = "original_max_position_embeddings";

[[nodiscard]] std::int64_t original_length(const ObjectReader& reader, const Lengths& lengths) {
  std::optional<std::int64_t> length = reader.integer(kOriginal);
  if (lengths.original) length = lengths.original;
  if (!length) length = lengths.max_position;
  if (!length) {
    reader.refuse(kOriginal,
                  "expected it here, or max_position_embeddings in the config, got neither");
  }
  if (*length <= 0) reader.refuse(kOriginal, message("expected a positive length, got ", *length));
  return *length;
}

// max / original: what an absent factor stands for.
[[nodiscard]] double ratio_of_lengths(const ObjectReader& reader, const Lengths& lengths,
                                      std::int64_t original) {
  if (!lengths.max_position) {
    reader.refuse(
        kFactor,
        "expected a number, or max_position_embeddings in the config to derive it, got neither");
  }
  return static_cast<double>(*lengths.max_position) / static_cast<double>(original);
}

RopeScaling read_default(const ObjectReader&, const Lengths&) {
  return encodings::DefaultScaling{};
}

RopeScaling read_linear(const ObjectReader& reader, const Lengths&) {
  return encodings::LinearScaling{reader.required_number(kFactor)};
}

RopeScaling read_ntk(const ObjectReader& reader, const Lengths&) {
  return encodings::NtkScaling{reader.required_number(kFactor), reader.number("mixed_b")};
}

RopeScaling read_dynamic(const ObjectReader& reader, const Lengths& lengths) {
  encodings::DynamicScaling dynamic;
  dynamic.alpha = reader.number("alpha");
  if (dynamic.alpha) {
    dynamic.factor = reader.number(kFactor).value_or(1.0);
    // Hunyuan writes YaRN's keys beside alpha; no engine reads them for this type.
    for (const std::string_view key : {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) {
      static_cast<void>(reader.number(key));
    }
    static_cast<void>(reader.integer(kOriginal));
    return dynamic;
  }
  dynamic.factor = reader.required_number(kFactor);
  // Hugging Face lets the dictionary name an original length and measures against
  // max_position_embeddings all the same.
  dynamic.original_length = original_length(reader, lengths);
  if (lengths.max_position) dynamic.original_length = *lengths.max_position;
  return dynamic;
}

RopeScaling read_ntk_by_parts(const ObjectReader& reader, const Lengths& lengths) {
  encodings::NtkByPartsScaling parts;
  parts.factor = reader.required_number(kFactor);
  parts.original_length = original_length(reader, lengths);
  parts.beta_0 = reader.number("beta_0").value_or(parts.beta_0);
  parts.beta_1 = reader.number("beta_1").value_or(parts.beta_1);
  parts.gamma_0 = reader.number("gamma_0").value_or(parts.gamma_0);
  parts.gamma_1 = reader.number("gamma_1").value_or(parts.gamma_1);
  parts.ntk_factor = reader.number("ntk_factor").value_or(parts.ntk_factor);
  parts.extrapolation_factor =
      reader.number("extrapolation_factor").value_or(parts.extrapolation_factor);
  return parts;
}

RopeScaling read_yarn(const ObjectReader& reader, const Lengths& lengths) {
  encodings::YarnScaling yarn;
  yarn.original_length = original_length(reader, lengths);
  const std::optional<double> factor = reader.number(kFactor);
  if (!factor && !reader.has_even_null(kFactor)) {
    reader.refuse(kFactor, "expected a number, or null for max / original, got nothing");
  }
  yarn.factor = factor ? *factor : ratio_of_lengths(reader, lengths, yarn.original_length);
  yarn.beta_fast = reader.number("beta_fast").value_or(yarn.beta_fast);
  yarn.beta_slow = reader.number("beta_slow").value_or(yarn.beta_slow);
  yarn.truncate = reader.flag("truncate").value_or(yarn.truncate);
  yarn.attention_factor = reader.number("attention_factor");
  yarn.mscale = reader.number("mscale").value_or(yarn.mscale);
  yarn.mscale_all_dim = reader.number("mscale_all_dim").value_or(yarn.mscale_all_dim);
  // Says how the weights came to be, changes no number.
  static_cast<void>(reader.flag("finetuned"));
  return yarn;
}

RopeScaling read_longrope(const ObjectReader& reader, const Lengths& lengths) {
  encodings::LongRopeScaling longrope;
  const auto list = [&](std::string_view key) {
    std::optional<std::vector<double>> numbers = reader.numbers(key);
    if (!numbers) reader.refuse(key, "expected a list of numbers, got nothing");
    return *std::move(numbers);
  };
  longrope.short_factor = list("short_factor");
  longrope.long_factor = list("long_factor");
  longrope.original_length = original_length(reader, lengths);
  longrope.attention_factor = reader.number("attention_factor");
  longrope.short_mscale = reader.number("short_mscale");
  longrope.long_mscale = reader.number("long_mscale");
  const bool amplitude_given =
      longrope.attention_factor || (longrope.short_mscale && longrope.long_mscale);
  if (const std::optional<double> factor = reader.number(kFactor)) {
    longrope.factor = *factor;
  } else if (!amplitude_given || lengths.max_position) {
    longrope.factor = ratio_of_lengths(reader, lengths, longrope.original_length);
  }
  return longrope;
}

RopeScaling read_llama3(const ObjectReader& reader, const Lengths& lengths) {
  if (!reader.has(kOriginal) && !lengths.original)
    reader.refuse(kOriginal, "expected an integer, got nothing");
  return encodings::Llama3Scaling{
      reader.required_number(kFactor), reader.required_number("low_freq_factor"),
      reader.required_number("high_freq_factor"), original_length(reader, lengths)};
}

RopeScaling read_proportional(const ObjectReader& reader, const Lengths&) {
  return encodings::ProportionalScaling{reader.number("partial_rotary_factor").value_or(1.0),
                                        reader.number(kFactor).value_or(1.0)};
}

// Keys that are read and still leave every number as it is.
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
    for (const std::string_view key : {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) {
      note(key, "a key of yarn; the dynamic type does not read it");
    }
    if (dynamic->alpha) note(kFactor, "not used beside alpha");
    note(kOriginal, dynamic->alpha ? "not used beside alpha"
                                   : "not used: the length is measured against "
                                     "max_position_embeddings, as Hugging Face does");
  }
  if (const auto* yarn = std::get_if<encodings::YarnScaling>(&scaling)) {
    note("finetuned", "says how the weights came to be and changes no number");
    const bool both = yarn->mscale != 0.0 && yarn->mscale_all_dim != 0.0;
    for (const std::string_view key : {"mscale", "mscale_all_dim"}) {
      if (yarn->attention_factor) {
        note(key, "does not reach the amplitude: attention_factor overrides it");
      } else if (!both) {
        note(key, "does not reach the amplitude: it counts only beside the other of the two");
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

struct RopeType {
  std::string_view name;
  RopeScaling (*read)(const ObjectReader&, const Lengths&);
  std::string_view takes;  // for messages: the keys of this type alone
};

constexpr std::array kTypes = {
    RopeType{"default", read_default, ""},
    RopeType{"axial", read_default, ""},
    RopeType{"linear", read_linear, "factor"},
    RopeType{"ntk", read_ntk, "factor, mixed_b"},
    RopeType{"dynamic", read_dynamic, "factor, alpha, original_max_position_embeddings"},
    RopeType{
        "ntk_by_parts", read_ntk_by_parts,
        "factor, original_max_position_embeddings, beta_0, beta_1, gamma_0, gamma_1, ntk_factor, "
        "extrapolation_factor"},
    RopeType{"yarn", read_yarn,
             "factor, original_max_position_embeddings, beta_fast, beta_slow, truncate, "
             "attention_factor, mscale, "
             "mscale_all_dim, finetuned"},
    RopeType{"longrope", read_longrope,
             "short_factor, long_factor, factor, original_max_position_embeddings, "
             "attention_factor, short_mscale, "
             "long_mscale"},
    RopeType{"llama3", read_llama3,
             "factor, low_freq_factor, high_freq_factor, original_max_position_embeddings"},
    RopeType{"proportional", read_proportional, "factor, partial_rotary_factor"},
};

// Old names: su became longrope; mrope is default frequencies read by three rows of positions.
[[nodiscard]] std::string_view current_name(std::string_view name) {
  if (name == "su") return "longrope";
  return name == "mrope" ? "default" : name;
}

[[nodiscard]] const RopeType& type_of(const ObjectReader& reader, DictionaryForm form) {
  const std::optional<std::string> old_key = reader.text("type");
  const std::optional<std::string> new_key = reader.text("rope_type");
  if (old_key && new_key && current_name(*old_key) != current_name(*new_key)) {
    reader.refuse("type", message("expected the same as rope_type \"", *new_key, "\", got \"",
                                  *old_key, "\""));
  }
  if (!old_key && !new_key) {
    if (form == DictionaryForm::rope_parameters) return kTypes.front();
    reader.refuse("rope_type", "expected a type, got nothing");
  }
  const std::string given = new_key ? *new_key : *old_key;
  // A plain spec says axial outside its scaling.
  const auto fits = [&](const RopeType& type) {
    return type.name != "axial" || form != DictionaryForm::plain_scaling;
  };
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(), [&](const RopeType& type) {
    return type.name == current_name(given) && fits(type);
  });
  if (found == kTypes.end()) {
    std::string names;
    for (const RopeType& type : kTypes) {
      if (fits(type)) names += (names.empty() ? "" : ", ") + std::string(type.name);
    }
    reader.refuse(new_key ? "rope_type" : "type",
                  message("expected one of ", names, ", got \"", given, "\""));
  }
  return *found;
}

[[noreturn]] void refuse_key(const ObjectReader& reader, const std::string& key,
                             const RopeType& type, DictionaryForm form) {
  if (key == "llama_4_scaling_beta") {
    reader.refuse_as(ErrorCode::unsupported, key,
                     "expected no scaling of queries by position, got " + shown(reader.value(key)));
  }
  std::string hint;
  if (key == "attn_factor") hint = " (attention_factor is meant?)";
  if (form == DictionaryForm::plain_scaling) {
    if (key == "rope_theta") hint = " (the spec's own base is meant?)";
    if (key == "partial_rotary_factor") hint = " (the spec's own rotary_dim is meant?)";
    if (key == "mrope_section") hint = " (the spec's own mrope is meant?)";
  }
  const std::string_view common =
      form == DictionaryForm::plain_scaling ? "type"
      : type.name == "proportional"
          ? "rope_type, rope_theta"
          : "rope_type, rope_theta, partial_rotary_factor, mrope_section, "
            "mrope_interleaved";
  reader.refuse(key, message("expected a key of type ", type.name, ": ", type.takes,
                             type.takes.empty() ? "" : ", ", common, ", got an unknown one", hint));
}

}  // namespace

RopeDictionary read_rope_dictionary(const ObjectReader& reader, DictionaryForm form,
                                    const Lengths& lengths) {
  const RopeType& type = type_of(reader, form);
  RopeDictionary dictionary;
  dictionary.scaling = type.read(reader, lengths);
  dictionary.axial = type.name == "axial";
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
    if (type.name != "proportional" && !dictionary.axial) {
      dictionary.mrope_sections = reader.integers("mrope_section");
      dictionary.mrope_interleaved = reader.flag("mrope_interleaved");
    }
    const auto old_type = reader.text("type");
    if (old_type && *old_type == "mrope" && !dictionary.mrope_sections) {
      reader.refuse("mrope_section", "expected three integers for type mrope, got nothing");
    }
    if (dictionary.mrope_interleaved.value_or(false) && !dictionary.mrope_sections) {
      reader.refuse("mrope_section",
                    "expected three integers beside mrope_interleaved, got nothing");
    }
  }
  const std::vector<std::string> rest = reader.keys_not_understood();
  if (!rest.empty()) refuse_key(reader, rest.front(), type, form);
  return dictionary;
}

}  // namespace phasor::config
