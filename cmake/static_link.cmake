# Libraries that libphasor uses. Programs that link the static library need them too. A new dependency is one more line of
# PHASOR_NEEDED_LIBRARIES.
set(PHASOR_NEEDED_LIBRARIES "")
if(PHASOR_ZLIB)
  list(APPEND PHASOR_NEEDED_LIBRARIES ${PHASOR_ZLIB_LIBRARY})
endif()
if(PHASOR_ONEDNN)
  list(APPEND PHASOR_NEEDED_LIBRARIES ${DNNL_LIBRARY})
endif()
if(PHASOR_SENTENCEPIECE)
  list(APPEND PHASOR_NEEDED_LIBRARIES ${SENTENCEPIECE_LIBRARY})
endif()

# /usr/lib/x86_64-linux-gnu/libdnnl.so -> dnnl
function(phasor_link_name library result)
  get_filename_component(name ${library} NAME_WE)
  string(REGEX REPLACE "^lib" "" name ${name})
  set(${result} ${name} PARENT_SCOPE)
endfunction()

# phasor_link_needs(target): in the build by path; installed by a target that phasorConfig.cmake finds on the machine of
# the program, since its path may differ there.
function(phasor_link_needs target)
  foreach(library ${PHASOR_NEEDED_LIBRARIES})
    phasor_link_name(${library} name)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${library}> $<INSTALL_INTERFACE:phasor::needs_${name}>)
  endforeach()
endfunction()

# For phasorConfig.cmake (PHASOR_NEEDED_NAMES) and phasor.pc (PHASOR_PC_LIBS_PRIVATE). The C++ library and libm are named
# because a C program's linker does not add them.
set(PHASOR_NEEDED_NAMES "")
set(PHASOR_PC_LIBS_PRIVATE "")
foreach(library ${PHASOR_NEEDED_LIBRARIES})
  phasor_link_name(${library} name)
  list(APPEND PHASOR_NEEDED_NAMES ${name})
  get_filename_component(folder ${library} DIRECTORY)
  if(NOT folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    string(APPEND PHASOR_PC_LIBS_PRIVATE " -L${folder}")
  endif()
  string(APPEND PHASOR_PC_LIBS_PRIVATE " -l${name}")
endforeach()
set(implicit ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(REMOVE_DUPLICATES implicit)
list(FILTER implicit INCLUDE REGEX "^(stdc[+][+]|c[+][+]|c[+][+]abi|m|atomic)$")
foreach(name ${implicit})
  string(APPEND PHASOR_PC_LIBS_PRIVATE " -l${name}")
endforeach()
string(APPEND PHASOR_PC_LIBS_PRIVATE " -lpthread")
string(STRIP "${PHASOR_PC_LIBS_PRIVATE}" PHASOR_PC_LIBS_PRIVATE)
