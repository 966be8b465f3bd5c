"""The check of exported names, on headers and symbols made for it."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_symbols  # noqa: E402

HEADER = """
namespace phasor::core {
class PHASOR_API Table {
 public:
  void grow();
};
struct Plain { int x; };  // PHASOR_API hidden(int) is only a comment
[[nodiscard]] PHASOR_API std::vector<int> rotate(const Plain& x,
                                                 int y);
}  // namespace phasor::core
#define PHASOR_API __attribute__((visibility("default")))
namespace phasor {
namespace detail {
PHASOR_API void append_to(std::string& text, double number);
inline int twice(int x) { return 2 * x; }
}  // namespace detail
PHASOR_API void refuse(const std::string& text);
}  // namespace phasor
"""
C_HEADER = "PHASOR_API const char* phasor_version(void);\n"
GOOD = [
    "phasor::core::Table::grow()",
    "phasor::core::Table::Inner::~Inner()",
    "typeinfo for phasor::core::Table",
    "phasor::core::rotate[abi:cxx11](phasor::core::Plain const&, int)",
    "phasor::refuse(std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&)",
    "phasor::detail::append_to(std::string&, double)",
    "phasor_version",
]


class CheckSymbols(unittest.TestCase):
    def test_declared_names_pass(self):
        self.assertEqual(check_symbols.problems(GOOD, [HEADER, C_HEADER]), [])

    def test_names_that_no_header_declares_fail(self):
        for stray in [
            "phasor::core::hidden(int)",
            "phasor::core::Tables::grow()",
            "phasor::Table::grow()",
            "phasor_internal",
            "std::vector<int>::push_back(int const&)",
            "typeinfo for phasor::core::Plain",
        ]:
            found = check_symbols.problems([*GOOD, stray], [HEADER, C_HEADER])
            self.assertEqual(len(found), 1, stray)
            self.assertIn(stray, found[0])

    def test_marked_names_must_be_exported(self):
        found = check_symbols.problems(GOOD[:-1], [HEADER, C_HEADER])
        self.assertEqual(found, ["PHASOR_API marks it, but it is not exported: phasor_version"])

    def test_classes_to_catch_or_derive_from_need_their_typeinfo(self):
        base = "class PHASOR_API Reader {\n public:\n  virtual ~Reader() = default;\n};\n"
        failure = "class PHASOR_API Failure : public std::runtime_error {\n};\n"
        texts = [HEADER, C_HEADER, "namespace phasor {\n" + base + failure + "}\n"]
        both = ["typeinfo for phasor::Reader", "typeinfo for phasor::Failure"]
        self.assertEqual(check_symbols.problems(GOOD + both, texts), [])
        self.assertEqual(check_symbols.problems(GOOD + both[:1], texts), ["its typeinfo is not exported: Failure"])
        self.assertEqual(check_symbols.problems(GOOD + both[1:], texts), ["its typeinfo is not exported: Reader"])


if __name__ == "__main__":
    unittest.main()
