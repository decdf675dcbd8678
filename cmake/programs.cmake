# What folders of programs call.
#
# penstock_program(name source ...): a program in build/bin, with its pages of the manual and its completion. Sources that end in .cu are compiled by g++ as C++ where there
# is no nvcc, so one file serves both builds.
penstock_needs(CLI11 libcli11-dev)
penstock_needs(nlohmann_json nlohmann-json3-dev)

# As it is installed below share/ (install.cmake).
set(penstock_manual_folder ${PROJECT_BINARY_DIR}/manual)

function(penstock_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE penstock penstock_build_options CLI11::CLI11 nlohmann_json::nlohmann_json)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  if(NOT PENSTOCK_WITH_CUDA)
    foreach(source ${ARGN})
      if(source MATCHES "\\.cu$")
        set_source_files_properties(${source} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
      endif()
    endforeach()
  endif()
  if(PENSTOCK_INSTALL)
    install(TARGETS ${name} COMPONENT programs)
  endif()
  # What the program says of its command line, for man and for shells.
  set(stamp ${CMAKE_CURRENT_BINARY_DIR}/${name}_manual.stamp)
  add_custom_command(OUTPUT ${stamp} DEPENDS ${name} VERBATIM
    COMMAND ${name} --write-manual ${penstock_manual_folder}
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp})
  add_custom_target(${name}_manual ALL DEPENDS ${stamp})
endfunction()

# penstock_run_once(source ...): command lines and reports. Half of their compiling is optimising what CLI11's and nlohmann's templates make, and
# they run once. Nothing that is measured stands in these files.
function(penstock_run_once)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-Og>")
endfunction()
