# Build for WebAssembly with Debian's Emscripten. `./dev web` sets NODE_PATH, which its optimiser needs.
include(/usr/share/emscripten/cmake/Modules/Platform/Emscripten.cmake)
set(CMAKE_C_FLAGS_INIT -msimd128)
# Exceptions of WebAssembly itself: smaller and faster than Emscripten's own, which leave through JavaScript.
set(CMAKE_CXX_FLAGS_INIT "-msimd128 -fwasm-exceptions")
