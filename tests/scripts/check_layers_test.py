"""The layer check must see an upward include, a sideways one, and nothing else."""

import pathlib
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_layers  # noqa: E402

TABLE = tomllib.loads((ROOT / "scripts" / "layers.toml").read_text(encoding="utf-8"))


class CheckLayers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for path in ["include/phasor/core/a.hpp", "include/phasor/io/a.hpp", "include/phasor/encodings/a.hpp",
                     "include/phasor/config/a.hpp", "include/phasor/phasor.h", "include/phasor/c/a.h",
                     "include/phasor/export.h", "src/core/private.hpp", "src/core/kernels/k.hpp", "tests/core/helper.hpp", "tests/support/helper.hpp",
                     "tools/phasor/a.hpp", "bench/core/timing.hpp"]:
            self.write(path, "")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def problems(self, path, text):
        self.write(path, text)
        return check_layers.check(self.root, TABLE)[0]

    def expect_fine(self, path, text):
        self.assertEqual(self.problems(path, text), [])

    def expect_one(self, path, text, words):
        found = self.problems(path, text)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])
        self.assertTrue(found[0].startswith(path), found[0])

    def test_downward_and_own_room(self):
        self.expect_fine("src/config/x.cpp", '#include "phasor/io/a.hpp"\n#include "phasor/config/a.hpp"\n'
                         '#include "phasor/core/a.hpp"\n#include <vector>\n')
        self.expect_fine("src/core/x.cpp", '#include "core/private.hpp"\n#include "private.hpp"\n')

    def test_upward(self):
        self.expect_one("src/core/x.cpp", '#include <vector>\n\n#include "phasor/io/a.hpp"\n', ":3: core must")
        self.expect_one("src/core/x.cpp", "#include <phasor/io/a.hpp>\n", "io/a.hpp")

    def test_upward_in_a_public_header(self):
        self.expect_one("include/phasor/core/b.hpp", '#include "phasor/config/a.hpp"\n', "core must")

    def test_sideways(self):
        self.expect_one("src/io/x.cpp", '#include "phasor/encodings/a.hpp"\n', "io must")

    def test_private_headers_belong_to_their_room_and_its_tests(self):
        self.expect_one("src/io/x.cpp", '#include "core/private.hpp"\n', "core/private.hpp is private")
        self.write("src/io/x.cpp", "")
        self.expect_fine("tests/core/x.cpp", '#include "core/private.hpp"\n')
        self.expect_one("tools/phasor/x.cpp", '#include "core/private.hpp"\n', "is private")
        self.write("tools/phasor/x.cpp", "")
        self.expect_one("src/core/x.cpp", '#include "../io/p.hpp"\n', "../io/p.hpp")
        self.write("src/io/p.hpp", "")
        self.expect_one("src/core/x.cpp", '#include "../io/p.hpp"\n', "core must")

    def test_installed_headers_include_installed_headers_only(self):
        self.write("include/phasor/core/internal/i.hpp", "")
        self.expect_fine("src/io/x.cpp", '#include "phasor/core/internal/i.hpp"\n')
        self.expect_fine("include/phasor/io/internal/j.hpp", '#include "phasor/core/internal/i.hpp"\n')
        self.expect_one("include/phasor/core/b.hpp", '#include "phasor/core/internal/i.hpp"\n', "not installed")

    def test_a_top_header_pulls_in_its_rooms_only(self):
        self.expect_fine("include/phasor/rope.hpp", '#include "phasor/core/a.hpp"\n')
        self.expect_fine("include/phasor/attention.hpp", '#include "phasor/rope.hpp"\n')
        self.write("include/phasor/attention.hpp", "")
        self.write("include/phasor/config/a.hpp", '#include "phasor/io/a.hpp"\n')
        self.expect_one("include/phasor/rope.hpp", '#include "phasor/config/a.hpp"\n', "room io")

    def test_rooms_include_neither_tests_nor_tools(self):
        self.expect_one("src/config/x.cpp", '#include "core/helper.hpp"\n', "config must")
        self.expect_one("src/config/x.cpp", '#include "../../tools/phasor/a.hpp"\n', "config must")

    def test_edges_share_bench_and_tools_and_rooms_do_not(self):
        self.expect_fine("tools/phasor/x.cpp", '#include "core/timing.hpp"\n')
        self.expect_fine("web/x.cpp", '#include "../tools/phasor/a.hpp"\n')
        self.write("fuzz/a.hpp", "")
        self.expect_one("bench/core/x.cpp", '#include "../../fuzz/a.hpp"\n', "bench must")
        self.write("bench/core/x.cpp", "")
        self.expect_one("src/core/x.cpp", '#include "core/timing.hpp"\n', "core must")

    def test_costly_headers_are_compiled_once(self):
        self.expect_fine("src/io/json/library.cpp", "#include <nlohmann/json.hpp>\n")
        for path in ["src/io/x.cpp", "tools/phasor/x.cpp", "tests/core/x.cpp", "include/phasor/io/b.hpp"]:
            self.expect_one(path, "#include <vector>\n#include <nlohmann/json_fwd.hpp>\n",
                            ":2: only src/io/json/library.cpp may include")
            self.write(path, "")

    def test_top_headers_are_for_the_edges(self):
        self.expect_fine("src/capi/x.cpp", '#include "phasor/phasor.h"\n')
        self.expect_fine("tools/phasor/x.cpp", '#include "phasor/phasor.h"\n#include "phasor/config/a.hpp"\n')
        self.expect_one("src/io/x.cpp", '#include "phasor/phasor.h"\n', "io must")

    def test_the_c_header_stays_alone(self):
        for path, name in [("include/phasor/phasor.h", "phasor.h"), ("include/phasor/c/b.h", "c")]:
            self.expect_fine(path, '#include <stdint.h>\n#include <stddef.h>\n#include "phasor/c/a.h"\n')
            self.expect_one(path, "#include <stdio.h>\n", "stdint.h, stddef.h and phasor/export.h only")
            self.expect_one(path, '#include "phasor/core/a.hpp"\n', f"{name} must")
            self.write(path, "")
        self.expect_one("src/io/x.cpp", '#include "phasor/c/a.h"\n', "io must")

    def test_the_mark_of_exported_names_is_for_every_header(self):
        include = '#include "phasor/export.h"\n'
        self.expect_fine("include/phasor/phasor.h", include)
        self.expect_fine("include/phasor/core/b.hpp", include)
        self.expect_fine("src/io/x.cpp", include)
        self.expect_one("src/core/kernels/x.cpp", include, "kernel headers only")
        self.write("src/core/kernels/x.cpp", "")
        self.expect_one("include/phasor/export.h", '#include "phasor/phasor.h"\n', "export.h must")

    def test_tests_use_their_room_and_those_below(self):
        self.expect_fine("tests/config/x.cpp", '#include "phasor/io/a.hpp"\n#include "support/helper.hpp"\n')
        self.expect_one("tests/io/x.cpp", '#include "phasor/config/a.hpp"\n', "io must")
        self.write("tests/io/x.cpp", "")
        self.expect_fine("tests/config/x.cpp", '#include "core/helper.hpp"\n')
        self.write("tests/config/helper.hpp", "")
        self.expect_one("tests/core/x.cpp", '#include "config/helper.hpp"\n', "core must")

    def test_every_folder_of_kernels_is_one(self):
        self.write("include/phasor/core/internal/kernels/k.hpp", "")
        self.expect_fine("src/attention/kernels/x.cpp", '#include "phasor/core/internal/kernels/k.hpp"\n')
        self.expect_one("src/attention/kernels/x.cpp", "#include <vector>\n", "no standard template")

    def test_kernels_hold_no_standard_template(self):
        self.expect_fine("src/core/kernels/x.cpp", '#include <immintrin.h>\n#include "core/kernels/k.hpp"\n')
        self.expect_one("src/core/kernels/x.cpp", "#include <algorithm>\n", "no standard template")
        self.expect_one("src/core/kernels/x.cpp", '#include "phasor/core/a.hpp"\n', "kernel headers only")

    def test_comments_do_not_count(self):
        self.expect_fine("src/core/x.cpp", '// #include "phasor/io/a.hpp"\n/*\n#include "phasor/io/a.hpp"\n*/\n')

    def test_a_missing_file_and_a_room_that_is_not_listed(self):
        self.expect_one("src/core/x.cpp", '#include "phasor/core/missing.hpp"\n', "missing.hpp")
        self.write("src/core/x.cpp", "")
        self.expect_one("src/attic/x.cpp", "", "attic")

    def test_a_cycle_in_the_table(self):
        table = {**TABLE, "rooms": {**TABLE["rooms"], "core": ["io"]}}
        with self.assertRaisesRegex(ValueError, "cycle"):
            check_layers.check(self.root, table)

    def test_the_exit_code(self):
        self.assertEqual(check_layers.main(["--root", str(self.root)]), 0)
        self.write("src/core/x.cpp", '#include "phasor/io/a.hpp"\n')
        self.assertEqual(check_layers.main(["--root", str(self.root)]), 1)
        with tempfile.TemporaryDirectory() as empty:
            self.assertEqual(check_layers.main(["--root", empty]), 2)


if __name__ == "__main__":
    unittest.main()
