include(${CMAKE_CURRENT_LIST_DIR}/lockstep-targets.cmake)
