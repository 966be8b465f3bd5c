#include "parallel/comm/build_id.hpp"

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace phasor::parallel {
namespace {

struct Search {
  std::uintptr_t code = 0;  // an address in the object that is looked for
  std::string found;
};

[[nodiscard]] bool holds(const dl_phdr_info& object, std::uintptr_t address) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object.dlpi_phdr[i];
    const std::uintptr_t first = object.dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && address >= first && address < first + part.p_memsz) return true;
  }
  return false;
}

[[nodiscard]] std::string id_in(const char* notes, std::size_t size) {
  const auto padded = [](std::size_t count) { return (count + 3) / 4 * 4; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes, sizeof note);
    const std::size_t name = padded(note.n_namesz), content = padded(note.n_descsz);
    if (size < sizeof note + name + content) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(notes + sizeof note, "GNU", 4) == 0) {
      constexpr char kDigits[] = "0123456789abcdef";
      std::string text;
      for (std::size_t i = 0; i < note.n_descsz; ++i) {
        const auto byte = static_cast<unsigned char>(notes[sizeof note + name + i]);
        text += kDigits[byte / 16];
        text += kDigits[byte % 16];
      }
      return text;
    }
    notes += sizeof note + name + content;
    size -= sizeof note + name + content;
  }
  return {};
}

int look(dl_phdr_info* object, std::size_t, void* user) {
  auto& search = *static_cast<Search*>(user);
  if (!holds(*object, search.code)) return 0;
  for (int i = 0; i < object->dlpi_phnum && search.found.empty(); ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    search.found = id_in(reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr),
                         static_cast<std::size_t>(part.p_memsz));
  }
  return 1;
}

}  // namespace

std::string build_id() {
  Search search{.code = reinterpret_cast<std::uintptr_t>(&build_id), .found = {}};
  dl_iterate_phdr(&look, &search);
  return search.found;
}

}  // namespace phasor::parallel
