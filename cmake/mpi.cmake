# The MPI plug-ins: one source, built once for each MPI that is installed, into lib/lockstep/mpi-FAMILY.so.
#
# The wrapper compilers are only asked for their flags, so the plug-in is built with the project's compiler. They are
# found by the names that Debian gives them; elsewhere a plain mpicc is used for the family that it belongs to.

# lockstep_mpi_flags(FAMILY OUT): OUT_FOUND, OUT_INCLUDES, OUT_LINK
function(lockstep_mpi_flags family out)
  set(${out}_FOUND FALSE PARENT_SCOPE)
  if(CMAKE_CROSSCOMPILING) # the wrapper compilers speak of this machine's libraries
    return()
  endif()
  find_program(LOCKSTEP_MPICC_${family} NAMES mpicc.${family} mpicc)
  if(NOT LOCKSTEP_MPICC_${family})
    return()
  endif()
  execute_process(COMMAND ${LOCKSTEP_MPICC_${family}} -show OUTPUT_VARIABLE flags ERROR_QUIET RESULT_VARIABLE failed
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    return()
  endif()
  separate_arguments(flags UNIX_COMMAND "${flags}")
  set(includes ${flags})
  list(FILTER includes INCLUDE REGEX "^-I")
  list(TRANSFORM includes REPLACE "^-I" "")
  set(link ${flags})
  list(FILTER link INCLUDE REGEX "^(-L|-l|-Wl,-rpath)")

  # Does it compile, and is it the family that was asked for? A plain mpicc may be either.
  set(macro_openmpi OMPI_MAJOR_VERSION)
  set(macro_mpich MPICH_VERSION)
  set(probe ${PROJECT_BINARY_DIR}/generated/probe-${family}.c)
  file(CONFIGURE OUTPUT ${probe} CONTENT "#include <mpi.h>\n#ifndef ${macro_${family}}\n#error another MPI\n#endif\n")
  list(TRANSFORM includes PREPEND -I OUTPUT_VARIABLE include_flags)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -fsyntax-only ${include_flags} ${probe} RESULT_VARIABLE failed
                  OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    return()
  endif()
  set(${out}_FOUND TRUE PARENT_SCOPE)
  set(${out}_INCLUDES ${includes} PARENT_SCOPE)
  set(${out}_LINK ${link} PARENT_SCOPE)
endfunction()

foreach(family openmpi mpich)
  lockstep_mpi_flags(${family} mpi)
  if(NOT mpi_FOUND)
    message(STATUS "MPI plug-in for ${family}: not built, since there is no compiler wrapper for it (package lib${family}-dev)")
    continue()
  endif()
  add_library(lockstep_mpi_${family} MODULE ${PROJECT_SOURCE_DIR}/src/comm/mpi_plugin.c)
  set_target_properties(lockstep_mpi_${family} PROPERTIES PREFIX "" OUTPUT_NAME mpi-${family}
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/lockstep)
  target_include_directories(lockstep_mpi_${family} SYSTEM PRIVATE ${mpi_INCLUDES})
  target_link_libraries(lockstep_mpi_${family} PRIVATE lockstep_flags ${mpi_LINK})
  # Plug-ins that others can write to are not loaded (src/comm/plugin.h), whatever the umask was.
  add_custom_command(TARGET lockstep_mpi_${family} POST_BUILD
                     COMMAND chmod go-w $<TARGET_FILE:lockstep_mpi_${family}> ${PROJECT_BINARY_DIR}/lib/lockstep)
  install(TARGETS lockstep_mpi_${family} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
  message(STATUS "MPI plug-in for ${family}: ${LOCKSTEP_MPICC_${family}}")
endforeach()
