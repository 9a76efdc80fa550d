# What python/ puts into its wheel: a small liblockstep.so, and the program. Included only when scikit-build-core builds.
#
# The library has the functions that python/lockstep_torch/_library.py declares and what they need, taken from the archive: no BLAS, whose
# threads would compete with torch's own.
file(STRINGS python/lockstep_torch/_library.py functions REGEX "^    \"ls_[a-z0-9_]+\": \\(")
list(TRANSFORM functions REPLACE "^ *\"(ls_[a-z0-9_]+)\".*" "-Wl,-u,\\1")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS python/lockstep_torch/_library.py)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/python.c CONTENT "/* The library's functions come from the archive. */\n")
add_library(lockstep_python SHARED ${PROJECT_BINARY_DIR}/generated/python.c)
set_target_properties(lockstep_python PROPERTIES OUTPUT_NAME lockstep LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python)
target_link_options(lockstep_python PRIVATE ${functions} -Wl,--as-needed)
target_link_libraries(lockstep_python PRIVATE lockstep_static)
install(TARGETS lockstep_python LIBRARY DESTINATION lockstep_torch/lib COMPONENT python)
install(PROGRAMS $<TARGET_FILE:lockstep_cli> DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
