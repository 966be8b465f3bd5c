#include "phasor/lab/internal/model_spec.hpp"

#include <gtest/gtest.h>

#include "support/errors.hpp"

namespace phasor::lab {
namespace {

[[nodiscard]] io::Json decoder_json() {
  return io::Json::parse(R"({"architecture": "decoder", "vocabulary": 64, "hidden": 32, "layers": 2,
                             "heads": 4, "intermediate": 48, "context": 16})");
}

TEST(ModelSpec, JsonRoundTrips) {
  for (const char* const encoding :
       {R"("none")", R"("alibi")", R"({"name": "t5", "buckets": 16, "max_distance": 40})",
        R"({"name": "rope", "base": 500, "scaling": {"type": "linear", "factor": 4}})",
        R"({"name": "shaw", "clip": 5})", R"({"name": "hierarchical", "alpha": 0.3})",
        R"({"name": "deberta", "max_distance": 9})", R"({"name": "sinusoidal", "base": 100})"}) {
    io::Json json = decoder_json();
    json["encoding"] = io::Json::parse(encoding);
    const ModelSpec spec = parse_model_spec(json);
    const io::Json written = json_of(spec);
    EXPECT_EQ(written["encoding"], json["encoding"]) << encoding;
    EXPECT_EQ(json_of(parse_model_spec(written)), written) << encoding;
  }
}

TEST(ModelSpec, RefusesWhatDoesNotFit) {
  const auto refused = [](std::string_view key, const char* value, ErrorCode code,
                          std::initializer_list<std::string_view> parts) {
    io::Json json = decoder_json();
    json[key] = io::Json::parse(value);
    tests::expect_error(code, parts, [&] { return parse_model_spec(json); });
  };
  refused("hidden", "30", ErrorCode::invalid_argument, {"30", "4"});
  refused("layers", "0", ErrorCode::invalid_argument, {"layers", "0"});
  refused("dropout", "1.5", ErrorCode::invalid_argument, {"dropout", "1.5"});
  refused("encoding", R"("ropee")", ErrorCode::invalid_argument, {"ropee", "rope"});
  refused("encodng", R"("rope")", ErrorCode::invalid_argument, {"encodng", "encoding"});
  refused("encoding", R"({"name": "t5", "clip": 3})", ErrorCode::invalid_argument, {"clip"});
  refused("style", R"("roformer")", ErrorCode::unsupported, {"decoder", "roformer"});
  refused("head", R"("classification")", ErrorCode::invalid_argument, {"labels"});
  refused("feature_count", "8", ErrorCode::invalid_argument, {"feature_count", "8"});
  io::Json linear = decoder_json();
  linear["attention"] = "linear";
  linear["encoding"] = "t5";
  tests::expect_error(ErrorCode::unsupported, {"linear", "t5"},
                      [&] { return parse_model_spec(linear); });
}

}  // namespace
}  // namespace phasor::lab
