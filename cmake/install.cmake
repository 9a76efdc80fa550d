# What `make install` puts where: the program, the library with its public headers, a pkg-config file, a CMake package,
# and the man pages. (The MPI plug-ins install themselves: mpi.cmake.)
install(TARGETS lockstep_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS lockstep EXPORT lockstep-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS lockstep_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT lockstep-targets NAMESPACE lockstep:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstep-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/lockstep-config.cmake ${PROJECT_BINARY_DIR}/lockstep-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

# The pkg-config file names what the archive needs (pkg-config --static). It is written at install time: only then is the
# prefix known.
get_property(needs GLOBAL PROPERTY LOCKSTEP_NEEDS)
list(REMOVE_DUPLICATES needs)
set(pc_requires)
foreach(need ${needs})
  if(need MATCHES "^PkgConfig::(.+)")
    list(APPEND pc_requires ${${CMAKE_MATCH_1}_MODULE_NAME})
  endif()
endforeach()
list(JOIN pc_requires " " pc_requires)
set(pc_libs pthread ${CMAKE_DL_LIBS} m)
# Only clang itself knows where its OpenMP run time is.
if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
  list(PREPEND pc_libs ${OpenMP_C_LIB_NAMES})
endif()
list(REMOVE_DUPLICATES pc_libs)
list(TRANSFORM pc_libs PREPEND "-l")
if(CMAKE_C_COMPILER_ID STREQUAL "Clang")
  list(PREPEND pc_libs ${OpenMP_C_FLAGS})
endif()
list(JOIN pc_libs " " pc_libs)
set(AT @)
configure_file(cmake/lockstep.pc.in ${PROJECT_BINARY_DIR}/generated/lockstep.pc.in @ONLY)
install(CODE "configure_file(\"${PROJECT_BINARY_DIR}/generated/lockstep.pc.in\"
                             \"${PROJECT_BINARY_DIR}/generated/lockstep.pc\" @ONLY)")
install(FILES ${PROJECT_BINARY_DIR}/generated/lockstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY docs/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
install(DIRECTORY docs/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 FILES_MATCHING PATTERN "*.3")
install(FILES cli/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME lockstep)
