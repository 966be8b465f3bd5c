/* What libphasor shows to programs that link it: names marked PHASOR_API. Everything else is built
 * with hidden visibility. Compiles as C11 and as C++; the same mark serves the shared library, the
 * archive and the programs that include these headers. */
#ifndef PHASOR_EXPORT_H
#define PHASOR_EXPORT_H

#if defined(__GNUC__)
#define PHASOR_API __attribute__((visibility("default")))
#else
#define PHASOR_API
#endif

#endif
