// Structs of callers that are older or newer than the library: each struct of phasor.h that begins
// with struct_size, at its first size, at today's and at a later one.
#include "capi/struct_sizes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string>

#include "capi/edge.hpp"
#include "capi/support.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::capi {
namespace {

using testing::Cache;
using testing::Config;
using testing::expect_status;
using testing::make_rope;
using testing::Rope;
using testing::Tensor;

constexpr unsigned char kGarbage = 0xA5;

// A caller's struct of `size` bytes that begins with a T; what follows is garbage.
template <class T>
class Sized {
 public:
  Sized(const T& value, std::size_t size) : size_(size) {
    bytes_.fill(kGarbage);
    if (size > sizeof(T)) std::fill_n(bytes_.begin(), size, 0);
    std::memcpy(bytes_.data(), &value, std::min(size, sizeof(T)));
    const auto written = static_cast<std::uint32_t>(size);
    std::memcpy(bytes_.data(), &written, sizeof(written));
  }
  [[nodiscard]] T* get() { return reinterpret_cast<T*>(bytes_.data()); }
  unsigned char& operator[](std::size_t i) { return bytes_[i]; }
  [[nodiscard]] bool all_are(std::size_t from, std::size_t to, unsigned char value) const {
    return std::all_of(bytes_.begin() + static_cast<std::ptrdiff_t>(from),
                       bytes_.begin() + static_cast<std::ptrdiff_t>(to),
                       [&](unsigned char byte) { return byte == value; });
  }
  [[nodiscard]] bool garbage_after() const { return all_are(size_, bytes_.size(), kGarbage); }

 private:
  alignas(T) std::array<unsigned char, 1024> bytes_{};
  std::size_t size_;
};

// `value` is one that `call` takes.
template <class T>
void expect_input_grows(const char* name, const T& value,
                        const std::function<phasor_status(const T*)>& call) {
  SCOPED_TRACE(name);
  static_assert(kFirstSize<T> > sizeof(std::uint32_t) && kFirstSize<T> <= sizeof(T));
  for (const std::size_t size : {kFirstSize<T>, sizeof(T), sizeof(T) + 24}) {
    Sized<T> given(value, size);
    EXPECT_EQ(call(given.get()), PHASOR_OK) << size << ": " << phasor_last_error();
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{4}, kFirstSize<T> - 1}) {
    Sized<T> given(value, size);
    expect_status(call(given.get()), PHASOR_INVALID_ARGUMENT,
                  {"struct_size", std::to_string(kFirstSize<T>)});
  }
  Sized<T> newer(value, sizeof(T) + 24);
  newer[sizeof(T) + 9] = 7;
  expect_status(call(newer.get()), PHASOR_UNSUPPORTED, {"7", std::to_string(sizeof(T) + 9)});
  // An uninitialised struct.
  T unset = value;
  unset.struct_size = 0xCDCDCDCD;
  expect_status(call(&unset), PHASOR_INVALID_ARGUMENT, "3452816845");
}

template <class T>
void expect_output_grows(const char* name, const std::function<phasor_status(T*)>& call) {
  SCOPED_TRACE(name);
  T today{};
  today.struct_size = sizeof(T);
  ASSERT_EQ(call(&today), PHASOR_OK) << phasor_last_error();
  const auto* const expected = reinterpret_cast<const unsigned char*>(&today);
  for (const std::size_t size : {kFirstSize<T>, sizeof(T), sizeof(T) + 24}) {
    Sized<T> given(T{}, size);
    if (size > sizeof(T)) given[sizeof(T)] = 9;
    ASSERT_EQ(call(given.get()), PHASOR_OK) << phasor_last_error();
    EXPECT_EQ(given.get()->struct_size, size);
    EXPECT_EQ(std::memcmp(reinterpret_cast<unsigned char*>(given.get()) + sizeof(std::uint32_t),
                          expected + sizeof(std::uint32_t),
                          std::min(size, sizeof(T)) - sizeof(std::uint32_t)),
              0);
    EXPECT_TRUE(given.garbage_after()) << "written beyond the caller's size " << size;
    if (size > sizeof(T)) {
      EXPECT_TRUE(given.all_are(sizeof(T), size, 0));
    }
  }
  Sized<T> small(T{}, kFirstSize<T> - 1);
  const Sized<T> before = small;
  EXPECT_EQ(call(small.get()), PHASOR_INVALID_ARGUMENT);
  Sized<T> same = before;
  EXPECT_EQ(std::memcmp(small.get(), same.get(), sizeof(T)), 0);
}

class StructSize : public io::testing::TemporaryFolder {
 protected:
  static phasor_status created(phasor_status status, phasor_cache* cache) {
    const Cache owned(cache);
    return status;
  }

  Rope rope_ = make_rope(8);
  Tensor q_{3, 2, 0.1F}, k_{5, 2, 0.2F}, v_{5, 2, 0.3F}, out_{3, 2, 0.4F};
};

TEST_F(StructSize, RopeSpec) {
  phasor_rope_spec spec;
  ASSERT_EQ(phasor_rope_spec_init(&spec, sizeof(spec)), PHASOR_OK);
  spec.head_dim = 8;
  spec.layout = PHASOR_HALF;
  expect_input_grows<phasor_rope_spec>("phasor_rope_spec", spec, [](const phasor_rope_spec* given) {
    phasor_rope* rope = nullptr;
    const phasor_status status = phasor_rope_create(given, 0, &rope);
    const Rope owned(rope);
    return status;
  });
}

TEST_F(StructSize, InitWritesTheCallersSize) {
  for (const std::size_t size : {kFirstSize<phasor_rope_spec>, sizeof(phasor_rope_spec) + 24}) {
    Sized<phasor_rope_spec> spec(phasor_rope_spec{}, size);
    ASSERT_EQ(phasor_rope_spec_init(spec.get(), size), PHASOR_OK);
    EXPECT_EQ(spec.get()->struct_size, size);
    EXPECT_EQ(spec.get()->base, 10000.0);
    EXPECT_TRUE(spec.garbage_after());
    Sized<phasor_generate_options> options(phasor_generate_options{}, size);
    ASSERT_EQ(phasor_generate_options_init(options.get(), size), PHASOR_OK);
    EXPECT_EQ(options.get()->tokens, 128);
    EXPECT_EQ(options.get()->chunk, 512);
    EXPECT_TRUE(options.garbage_after());
  }
  phasor_rope_spec spec;
  EXPECT_EQ(phasor_rope_spec_init(&spec, 4), PHASOR_INVALID_ARGUMENT);
  // Too large for any struct: nothing is written, least of all after the struct.
  for (const std::size_t size : {kLargestStruct + 1, std::size_t{1} << 16, std::size_t{1} << 20}) {
    Sized<phasor_rope_spec> before(phasor_rope_spec{}, sizeof(phasor_rope_spec));
    Sized<phasor_rope_spec> same = before;
    expect_status(phasor_rope_spec_init(same.get(), size), PHASOR_INVALID_ARGUMENT,
                  std::to_string(size));
    EXPECT_EQ(std::memcmp(same.get(), before.get(), sizeof(phasor_rope_spec)), 0);
    EXPECT_TRUE(same.garbage_after());
    Sized<phasor_generate_options> options(phasor_generate_options{},
                                           sizeof(phasor_generate_options));
    EXPECT_EQ(phasor_generate_options_init(options.get(), size), PHASOR_INVALID_ARGUMENT);
    EXPECT_TRUE(options.garbage_after());
  }
  phasor_generate_options options;
  EXPECT_EQ(phasor_generate_options_init(&options, 4), PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(phasor_generate_options_init(nullptr, sizeof(options)), PHASOR_INVALID_ARGUMENT);
}

TEST_F(StructSize, Positions) {
  expect_input_grows<phasor_positions>(
      "phasor_positions", phasor_positions_from(3), [&](const phasor_positions* given) {
        return phasor_rotate_in_place(rope_.get(), given, &q_.c, nullptr, nullptr);
      });
}

TEST_F(StructSize, RotateOptions) {
  const phasor_positions positions = phasor_positions_from(0);
  expect_input_grows<phasor_rotate_options>(
      "phasor_rotate_options", {}, [&](const phasor_rotate_options* given) {
        return phasor_rotate_in_place(rope_.get(), &positions, &q_.c, nullptr, given);
      });
}

TEST_F(StructSize, AttendOptions) {
  expect_input_grows<phasor_attend_options>(
      "phasor_attend_options", {}, [&](const phasor_attend_options* given) {
        return phasor_attend(nullptr, &q_.c, &k_.c, &v_.c, &out_.c, given);
      });
}

TEST_F(StructSize, LinearOptions) {
  expect_input_grows<phasor_linear_options>(
      "phasor_linear_options", {}, [&](const phasor_linear_options* given) {
        return phasor_linear_attend(rope_.get(), &q_.c, &k_.c, &v_.c, &out_.c, given);
      });
}

TEST_F(StructSize, CacheSpecAndInfo) {
  phasor_cache_spec spec{};
  spec.dtype = PHASOR_F32;
  spec.batch = 1;
  spec.key_heads = 2;
  spec.head_dim = spec.value_dim = 8;
  spec.capacity = 4;
  expect_input_grows<phasor_cache_spec>(
      "phasor_cache_spec", spec, [](const phasor_cache_spec* given) {
        phasor_cache* cache = nullptr;
        const phasor_status status = phasor_cache_create(given, &cache);
        return created(status, cache);
      });
  spec.struct_size = sizeof(spec);
  phasor_cache* cache = nullptr;
  ASSERT_EQ(phasor_cache_create(&spec, &cache), PHASOR_OK) << phasor_last_error();
  const Cache owned(cache);
  expect_output_grows<phasor_cache_info>("phasor_cache_info", [&](phasor_cache_info* info) {
    return phasor_cache_describe(cache, info);
  });
}

TEST_F(StructSize, RopeInfo) {
  expect_output_grows<phasor_rope_info>("phasor_rope_info", [&](phasor_rope_info* info) {
    return phasor_rope_describe(rope_.get(), info);
  });
}

TEST_F(StructSize, OptionsAndInfoOfModels) {
  const std::string path = std::string(PHASOR_GOLDEN_DIR) + "/models/llama_gqa_llama3/model";
  expect_input_grows<phasor_model_options>(
      "phasor_model_options", {}, [&](const phasor_model_options* given) {
        phasor_model* model = nullptr;
        const phasor_status status = phasor_model_load(path.c_str(), given, &model);
        phasor_model_destroy(model);
        return status;
      });
  phasor_model* model = nullptr;
  ASSERT_EQ(phasor_model_load(path.c_str(), nullptr, &model), PHASOR_OK);
  expect_output_grows<phasor_model_info>("phasor_model_info", [&](phasor_model_info* info) {
    return phasor_model_describe(model, info);
  });
  phasor_generate_options options;
  ASSERT_EQ(phasor_generate_options_init(&options, sizeof(options)), PHASOR_OK);
  options.tokens = 1;
  expect_input_grows<phasor_generate_options>(
      "phasor_generate_options", options, [&](const phasor_generate_options* given) {
        const std::int64_t prompt = 1;
        phasor_ids* ids = nullptr;
        const phasor_status status =
            phasor_generate(model, &prompt, 1, given, nullptr, nullptr, &ids);
        phasor_ids_destroy(ids);
        return status;
      });
  phasor_model_destroy(model);
}

TEST_F(StructSize, DiffOptions) {
  const std::string text = R"({"head_dim": 8, "layout": "half", "max_position_embeddings": 64})";
  phasor_config* parsed = nullptr;
  ASSERT_EQ(phasor_config_parse(text.data(), text.size(), &parsed), PHASOR_OK)
      << phasor_last_error();
  const Config config(parsed);
  expect_input_grows<phasor_diff_options>(
      "phasor_diff_options", {}, [&](const phasor_diff_options* given) {
        phasor_text* page = nullptr;
        const phasor_status status = phasor_diff_json(config.get(), given, &page);
        phasor_text_destroy(page);
        return status;
      });
}

TEST_F(StructSize, SpecialTokens) {
  io::testing::put(at("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n");
  phasor_tokenizer* loaded = nullptr;
  ASSERT_EQ(phasor_tokenizer_load(at("").c_str(), &loaded), PHASOR_OK) << phasor_last_error();
  const testing::Tokenizer tokenizer(loaded);
  expect_output_grows<phasor_special_tokens>(
      "phasor_special_tokens",
      [&](phasor_special_tokens* specials) { return phasor_tokenizer_specials(loaded, specials); });
}

}  // namespace
}  // namespace phasor::capi
