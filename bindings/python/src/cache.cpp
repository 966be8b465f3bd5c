// KVCache.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <cmath>
#include <memory>
#include <string_view>
#include <vector>

#include "arrays.hpp"
#include "attention_call.hpp"
#include "busy.hpp"
#include "encoding.hpp"
#include "module.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "spec.hpp"
#include "without_gil.hpp"

namespace phasor::python {
namespace {

using namespace nb::literals;  // NOLINT(google-build-using-namespace)

struct PyCache {
  attention::KVCache value;
  std::optional<PySpec> spec;
  Busy busy;

  PyCache(attention::KVCache cache, std::optional<PySpec> of)
      : value(std::move(cache)), spec(std::move(of)) {}
};

[[nodiscard]] core::DType dtype_of(std::string_view name) {
  if (name == "float32") return core::DType::f32;
  if (name == "float16") return core::DType::f16;
  if (name == "bfloat16") return core::DType::bf16;
  refuse(ErrorCode::unsupported,
         message("KVCache: dtype must be float32, float16 or bfloat16, got ", name));
}

[[nodiscard]] attention::CacheMode mode_of(std::string_view name) {
  if (name == "compact") return attention::CacheMode::compact;
  if (name == "drift_free") return attention::CacheMode::drift_free;
  refuse(message("KVCache: mode must be compact or drift_free, got ", name));
}

[[nodiscard]] std::optional<PySpec> optional_spec(nb::handle object, const char* where) {
  if (object.is_none()) return std::nullopt;
  PySpec room;
  return spec_of(object, room, where);
}

void init(PyCache* self, std::int64_t key_heads, std::int64_t head_dim, std::int64_t capacity,
          std::optional<std::int64_t> value_dim, std::int64_t batch, std::string_view dtype,
          nb::handle spec, std::optional<std::int64_t> context, std::string_view mode) {
  attention::CacheSpec of;
  of.batch = batch;
  of.key_heads = key_heads;
  of.head_dim = head_dim;
  of.value_dim = value_dim.value_or(head_dim);
  of.capacity = capacity;
  of.dtype = dtype_of(dtype);
  of.mode = mode_of(mode);
  std::optional<PySpec> rotation = optional_spec(spec, "KVCache: spec");
  if (rotation) of.rotary = *rotation->rotary(context);
  new (self) PyCache(attention::KVCache(std::move(of)), std::move(rotation));
}

void append(PyCache& self, nb::handle k, nb::handle v, nb::handle positions,
            std::string_view order_name, int threads) {
  const Order order = order_of(order_name);
  const Array keys(k, "KVCache.append: k"), values(v, "KVCache.append: v");
  const core::ConstHeadsView k_view = heads_of(keys, order), v_view = heads_of(values, order);
  const std::optional<core::Positions> at = positions_of(positions, "KVCache.append: positions");
  const Busy::Writing writing(self.busy, "KVCache");
  without_gil([&] { self.value.append(k_view, v_view, at, threads); });
}

void rerotate(PyCache& self, nb::handle spec, nb::handle positions,
              std::optional<std::int64_t> context, int threads) {
  std::optional<PySpec> rotation = optional_spec(spec, "KVCache.rerotate: spec");
  if (!rotation) {
    refuse("KVCache.rerotate: spec must be a RopeSpec or a config, got None");
  }
  const std::shared_ptr<const core::Rotary> rotary = rotation->rotary(context);
  const std::optional<core::Positions> at = positions_of(positions, "KVCache.rerotate: positions");
  const Busy::Writing writing(self.busy, "KVCache");
  without_gil([&] { self.value.rerotate(*rotary, at, threads); });
  self.spec = std::move(rotation);
}

// Copies to a dense [batch, tokens, heads, dim]; bfloat16 becomes float32, as NumPy has no bfloat16.
template <class Stored, class Given, class Convert>
void copy_out(const core::ConstHeadsView& from, Given* to, const Convert& convert) {
  const auto* const data = static_cast<const Stored*>(from.data);
  for (std::int64_t b = 0; b < from.batch; ++b) {
    for (std::int64_t t = 0; t < from.tokens; ++t) {
      for (std::int64_t h = 0; h < from.heads; ++h) {
        const Stored* const row =
            data + b * from.batch_stride + t * from.token_stride + h * from.head_stride;
        for (std::int64_t d = 0; d < from.head_dim; ++d) *to++ = convert(row[d]);
      }
    }
  }
}

[[nodiscard]] nb::object numpy_copy(const core::ConstHeadsView& from) {
  const std::int64_t shape[] = {from.batch, from.tokens, from.heads, from.head_dim};
  const auto as_it_is = [](auto value) { return value; };
  nb::object array =
      numpy_empty(shape, from.dtype == core::DType::f16 ? Element::f16 : Element::f32);
  void* const data = numpy_data(array);
  switch (from.dtype) {
    case core::DType::f16:
      copy_out<core::Half>(from, static_cast<core::Half*>(data), as_it_is);
      break;
    case core::DType::bf16:
      copy_out<core::BFloat16>(from, static_cast<float*>(data),
                               [](core::BFloat16 value) { return core::to_float(value); });
      break;
    default:
      copy_out<float>(from, static_cast<float*>(data), as_it_is);
  }
  return array;
}

[[nodiscard]] nb::object positions(PyCache& self) {
  const Busy::Reading reading(self.busy, "KVCache");
  const std::vector<double> at = self.value.positions();
  const std::int64_t tokens = self.value.tokens();
  const std::int64_t axes =
      self.value.spec().rotary ? self.value.spec().rotary->frequencies.axis_count() : 1;
  std::vector<std::int64_t> shape;
  if (axes > 1) shape.push_back(axes);
  shape.push_back(tokens);
  nb::object array = numpy_empty(shape, Element::f64);
  std::ranges::copy(at, static_cast<double*>(numpy_data(array)));
  return array;
}

[[nodiscard]] nb::object attend_cache(PyCache& self, nb::handle q, nb::handle encoding, bool causal,
                                      std::optional<std::int64_t> window,
                                      std::optional<double> scale, double soft_cap, nb::handle mask,
                                      nb::handle key_padding, nb::handle query_positions,
                                      std::string_view order_name, int threads, nb::handle out) {
  const Order order = order_of(order_name);
  const Busy::Reading reading(self.busy, "KVCache");
  const Array array(q, "KVCache.attention: q");
  const core::ConstHeadsView view = heads_of(array, order);
  const core::ConstHeadsView keys = self.value.keys(), values = self.value.values();
  AttentionArguments arguments;
  arguments.causal = causal;
  arguments.window = window;
  arguments.scale = scale;
  arguments.soft_cap = soft_cap;
  arguments.mask = mask;
  arguments.key_padding = key_padding;
  arguments.query_positions = query_positions;
  arguments.threads = threads;
  const OptionsArgument options(arguments, view, keys.tokens);
  // The rotation of the cache alone reads no distance.
  const EncodingArgument argument(encoding, encoding.is_none()
                                                ? encodings::attention_shape(view, keys, values)
                                                : self.value.attention_shape(view, options.get()));
  Output output(out, array, output_shape(array, values.head_dim), "KVCache.attention: out");
  const core::HeadsView target = writable_heads_of(output.array(), order);
  encodings::ScoreTerms terms = argument.terms();
  // The cached keys are rotated already: queries are rotated by the cache's rotation.
  if (!terms.rotation) terms.rotation = self.value.spec().rotary;
  without_gil([&] { self.value.attend(terms, view, target, options.get()); });
  return output.finish();
}

[[nodiscard]] PyCache fork(PyCache& self, std::optional<std::int64_t> capacity) {
  const Busy::Reading reading(self.busy, "KVCache");
  return {capacity ? self.value.fork(*capacity) : self.value.fork(), self.spec};
}

[[nodiscard]] std::string cache_repr(const PyCache& self) {
  const attention::CacheSpec& spec = self.value.spec();
  return message("KVCache(key_heads=", spec.key_heads, ", head_dim=", spec.head_dim,
                 ", capacity=", spec.capacity, ", value_dim=", spec.value_dim,
                 ", batch=", spec.batch, "), ", self.value.tokens(), " tokens of ",
                 core::name_of(spec.dtype), spec.rotary ? ", rotated" : "");
}

}  // namespace

void add_cache(nb::module_& module) {
  nb::class_<PyCache>(
      module, "KVCache",
      "Keys and values of the tokens so far; keys are rotated when they are appended.",
      nb::is_final())
      .def("__init__", &init, nb::kw_only(), "key_heads"_a, "head_dim"_a, "capacity"_a,
           "value_dim"_a = nb::none(), "batch"_a = 1, "dtype"_a = "float32", "spec"_a = nb::none(),
           "context"_a = nb::none(), "mode"_a = "compact")
      .def("__len__", [](const PyCache& self) { return self.value.tokens(); })
      .def("__repr__", [](const PyCache& self) { return nb::str(cache_repr(self).c_str()); })
      .def_prop_ro("capacity", [](const PyCache& self) { return self.value.spec().capacity; })
      .def_prop_ro("next_position", [](const PyCache& self) { return self.value.next_position(); })
      .def_prop_ro("spec",
                   [](const PyCache& self) -> nb::object {
                     return self.spec ? nb::cast(*self.spec) : nb::none();
                   })
      .def("positions", &positions)
      .def("append", &append, "k"_a.none(), "v"_a.none(), "positions"_a = nb::none(), nb::kw_only(),
           "order"_a = "tokens_first", "threads"_a = 0)
      .def(
          "truncate",
          [](PyCache& self, std::int64_t tokens) {
            const Busy::Writing writing(self.busy, "KVCache");
            self.value.truncate(tokens);
          },
          "tokens"_a)
      .def(
          "evict",
          [](PyCache& self, std::int64_t first, std::int64_t last) {
            const Busy::Writing writing(self.busy, "KVCache");
            without_gil([&] { self.value.evict(first, last); });
          },
          "first"_a, "last"_a)
      .def(
          "shift",
          [](PyCache& self, std::int64_t first, std::int64_t last, std::int64_t delta,
             int threads) {
            const Busy::Writing writing(self.busy, "KVCache");
            without_gil([&] { self.value.shift(first, last, delta, threads); });
          },
          "first"_a, "last"_a, "delta"_a, nb::kw_only(), "threads"_a = 0)
      .def("rerotate", &rerotate, "spec"_a.none(), "positions"_a = nb::none(), nb::kw_only(),
           "context"_a = nb::none(), "threads"_a = 0)
      .def("fork", &fork, "capacity"_a = nb::none())
      .def_prop_ro(
          "keys",
          [](PyCache& self) {
            const Busy::Reading reading(self.busy, "KVCache");
            return numpy_copy(self.value.keys());
          },
          "A copy of the rotated keys, [batch, tokens, key_heads, head_dim]; bfloat16 as float32.")
      .def_prop_ro("values",
                   [](PyCache& self) {
                     const Busy::Reading reading(self.busy, "KVCache");
                     return numpy_copy(self.value.values());
                   })
      .def("attention", &attend_cache, "q"_a.none(), nb::kw_only(), "encoding"_a = nb::none(),
           "causal"_a = true, "window"_a = nb::none(), "scale"_a = nb::none(), "soft_cap"_a = 0.0,
           "mask"_a = nb::none(), "key_padding"_a = nb::none(), "query_positions"_a = nb::none(),
           "order"_a = "tokens_first", "threads"_a = 0, "out"_a = nb::none());
}

}  // namespace phasor::python
