// Files inside the command.
#pragma once

#include <cstddef>
#include <span>

// PHASOR_EMBED(name, path): the bytes of a file, between the symbols phasor_embedded_NAME and
// phasor_embedded_NAME_end. By the assembler: a compiler takes half a minute for a list of two million
// numbers. Outside of namespaces, once per name.
#define PHASOR_EMBED(name, path)                                                       \
  asm(".pushsection .rodata\n"                                                         \
      ".balign 64\n"                                                                   \
      ".globl phasor_embedded_" #name                                                  \
      "\n"                                                                             \
      ".hidden phasor_embedded_" #name "\nphasor_embedded_" #name ":\n.incbin \"" path \
      "\"\n"                                                                           \
      ".globl phasor_embedded_" #name "_end\n.hidden phasor_embedded_" #name           \
      "_end\nphasor_embedded_" #name "_end:\n.popsection\n");                          \
  extern "C" const std::byte phasor_embedded_##name[], phasor_embedded_##name##_end[];

// The bytes as a span.
#define PHASOR_EMBEDDED(name) \
  std::span<const std::byte>( \
      phasor_embedded_##name, \
      static_cast<std::size_t>(phasor_embedded_##name##_end - phasor_embedded_##name))
