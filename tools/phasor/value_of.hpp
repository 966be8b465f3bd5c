// The type of a value that a flag takes: an optional's or a list's element, or the target itself.
#pragma once

#include <optional>
#include <vector>

namespace phasor::tools {

template <class Target>
struct ValueOf {
  using type = Target;
};
template <class Element>
struct ValueOf<std::optional<Element>> {
  using type = Element;
};
template <class Element>
struct ValueOf<std::vector<Element>> {
  using type = Element;
};

}  // namespace phasor::tools
