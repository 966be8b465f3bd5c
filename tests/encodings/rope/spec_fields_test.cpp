// The tables of fields: what the edges may rely on, and the page of the documents printed from them.
#include "phasor/encodings/internal/fields.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "encodings/rope/rope_specs.hpp"
#include "phasor/core/error.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/encodings/internal/field_text.hpp"

namespace phasor::encodings {
namespace {

using testing::spec_of;

// Other than the default, and within the range of every field.
FieldValue other_value(FieldType type, const FieldValue& standard) {
  switch (type) {
    case FieldType::flag:
      return !std::get<bool>(standard);
    case FieldType::integer:
      return std::int64_t{4096};
    case FieldType::numbers:
      return std::vector<double>{1.5, 2.5};
    default:
      return 0.75;
  }
}

TEST(SpecFields, EveryMemberOfEveryScalingIsReadAndWritten) {
  std::set<std::string_view> names;
  for (const ScalingType* type : scaling_types()) {
    EXPECT_TRUE(names.insert(type->name).second) << type->name;
    EXPECT_EQ(find_scaling_type(type->name), type);
    const RopeScaling standard = type->make();
    EXPECT_EQ(&type_of(standard), type);
    RopeScaling changed = standard;
    for (const Field<RopeScaling>& field : type->fields) {
      const FieldValue value = other_value(field.type, field.get(changed));
      // With alpha, dynamic scaling has no length.
      if (std::holds_alternative<std::monostate>(field.get(changed)) &&
          field.missing != WhenMissing::not_used)
        continue;
      field.set(changed, value);
      EXPECT_EQ(field.get(changed), value) << type->name << " " << field.name;
      EXPECT_FALSE(field.meaning.empty()) << type->name << " " << field.name;
    }
    EXPECT_EQ(changed == standard, type->fields.empty()) << type->name;
  }
  EXPECT_EQ(find_scaling_type("spiral"), nullptr);
}

TEST(SpecFields, WordsHaveTheirChoices) {
  for (const Field<RopeSpec>& field : spec_fields()) {
    if (field.type != FieldType::word) continue;
    for (const std::string_view word : field.choices) {
      RopeSpec spec = spec_of(16, 10000.0);
      field.set(spec, word);
      EXPECT_EQ(field.get(spec), FieldValue(word)) << field.name;
    }
    EXPECT_EQ(choice_of(field.choices, "spiral"), std::nullopt);
  }
}

TEST(ContextFor, OneRule) {
  const RopeSpec plain = spec_of(16, 10000.0);
  const RopeSpec dynamic = spec_of(16, 10000.0, DynamicScaling{2.0, std::nullopt, 64});
  EXPECT_EQ(context_for(plain, std::nullopt, 99.0), std::nullopt);
  EXPECT_EQ(context_for(plain, 7, 99.0), 7);
  EXPECT_EQ(context_for(dynamic, 7, 99.0), 7);
  EXPECT_EQ(context_for(dynamic, std::nullopt, 99.5), 100);
  EXPECT_EQ(context_for(dynamic, std::nullopt, -3.0), 1);
  EXPECT_EQ(context_for(dynamic, std::nullopt, std::nullopt), std::nullopt);
  EXPECT_EQ(context_for(dynamic, std::nullopt, 1e300), std::nullopt);
  EXPECT_EQ(context_for(dynamic, std::nullopt, std::nan("")), std::nullopt);
}

TEST(ContextFor, AttentionReadsTheLargestKeyPosition) {
  const Encoding dynamic = spec_of(8, 10000.0, DynamicScaling{2.0, std::nullopt, 64});
  AttentionShape shape{4, 2, 8, 6, 5, 100};
  const auto base_of = [&] { return resolve(dynamic, shape).rotation->frequencies.values()[1]; };
  const auto resolved = [&](std::int64_t context) {
    return resolve_frequencies(std::get<RopeSpec>(dynamic), context).values()[1];
  };
  EXPECT_EQ(base_of(), resolved(100));
  shape.largest_position = 499.0;
  EXPECT_EQ(base_of(), resolved(500));
  shape.context = 200;
  EXPECT_EQ(base_of(), resolved(200));
}

// ---- docs/rope_spec.md

template <class Owner>
std::string table_of_fields(std::span<const Field<Owner>> fields, const Owner& standard) {
  std::string page = "| key | type | if missing | meaning |\n|---|---|---|---|\n";
  for (const Field<Owner>& field : fields) {
    page += message("| `", field.key, "`", field.place == FieldPlace::outside ? " (outside)" : "",
                    " | ", type_text(field), " | ", missing_text(field, standard), " | ",
                    field.meaning, " |\n");
  }
  return page;
}

std::string rope_spec_page() {
  std::string page =
      "# The RoPE spec\n\n"
      "The keys of a plain spec, `{\"head_dim\": 128, \"layout\": \"half\", ...}`, which are also "
      "the "
      "keywords of Python's `RopeSpec`.\n"
      "The same names are members of C's `phasor_rope_spec`. f_i = base^(-2i/dim) are the unscaled "
      "frequencies.\n"
      "`encodings_test` compares this page with the tables in `src/encodings/rope`.\n\n" +
      table_of_fields<RopeSpec>(spec_fields(), RopeSpec{});
  page += "\n## xpos\n\n" + table_of_fields<Xpos>(xpos_fields(), Xpos{});
  for (const ScalingType* type : scaling_types()) {
    page += message("\n## scaling: ", type->name, "\n\n", type->meaning, "\n");
    if (!type->fields.empty())
      page += "\n" + table_of_fields<RopeScaling>(type->fields, type->make());
  }
  return page;
}

TEST(SpecFields, DocumentIsPrintedFromTheTables) {
  std::ifstream file(std::string(PHASOR_GOLDEN_DIR) + "/../docs/rope_spec.md");
  std::stringstream written;
  written << file.rdbuf();
  EXPECT_EQ(written.str(), rope_spec_page()) << rope_spec_page();
}

}  // namespace
}  // namespace phasor::encodings
