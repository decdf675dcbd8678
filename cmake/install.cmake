# Install and export: a foreign project writes find_package(Penstock COMPONENTS mount) and links Penstock::penstock and, for
# mount_directory, Penstock::mount; or it asks pkg-config for penstock and penstock-mount. tests/install does both.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Penstock)

install(DIRECTORY include/penstock DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS penstock EXPORT PenstockTargets)
install(EXPORT PenstockTargets NAMESPACE Penstock:: DESTINATION ${package_folder})

# A component, since it needs libfuse. Without libfuse the package says so to a project that asks for it.
if(FUSE3_FOUND)
  set(PENSTOCK_INSTALLS_MOUNT ON)
  install(TARGETS penstock_mount EXPORT PenstockMountTargets)
  install(EXPORT PenstockMountTargets NAMESPACE Penstock:: DESTINATION ${package_folder})
else()
  set(PENSTOCK_INSTALLS_MOUNT OFF)
endif()
set(PENSTOCK_LACKS_MOUNT "this Penstock was built without libfuse 3; install it (Debian: libfuse3-dev) and build Penstock again")
if(PENSTOCK_PYTHON)
  set(PENSTOCK_LACKS_MOUNT "the wheel of Python has no libfuse; use a Penstock that cmake --install or libpenstock-dev installed")
endif()

# Every variable of the template is set to ON or OFF here: an empty one would leave a broken if() in the result.
if(LIBURING_FOUND)
  set(PENSTOCK_NEEDS_LIBURING ON)
else()
  set(PENSTOCK_NEEDS_LIBURING OFF)
endif()
set(PENSTOCK_BRINGS_LIBURING OFF)
if(PENSTOCK_PYTHON AND PENSTOCK_LIBURING_ARCHIVE)
  set(PENSTOCK_BRINGS_LIBURING ON)
  install(FILES ${PENSTOCK_LIBURING_ARCHIVE} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
configure_package_config_file(cmake/PenstockConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/PenstockConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/PenstockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/PenstockConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/PenstockConfigVersion.cmake
  DESTINATION ${package_folder})

# The prefix is found from where the .pc file lies, so the installed tree may be moved. A folder that was given by its absolute path, as some
# distributions do, stays there.
set(PENSTOCK_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
set(PENSTOCK_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
if(IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
  set(PENSTOCK_PC_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(PENSTOCK_PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
  set(PENSTOCK_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  set(PENSTOCK_PC_PREFIX "\${pcfiledir}/${to_prefix}")
endif()
set(PENSTOCK_PC_REQUIRES "")
set(PENSTOCK_PC_LIBS "-lpthread")  # not -pthread, which nvcc does not take
set(PENSTOCK_PC_CFLAGS "")
if(PENSTOCK_NEEDS_LIBURING)
  set(PENSTOCK_PC_REQUIRES "liburing")
endif()
if(PENSTOCK_WITH_CUDA)
  string(APPEND PENSTOCK_PC_LIBS " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
  string(APPEND PENSTOCK_PC_CFLAGS " -DPENSTOCK_WITH_CUDA")
endif()
configure_file(cmake/penstock.pc.in ${CMAKE_CURRENT_BINARY_DIR}/penstock.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/penstock.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(PENSTOCK_INSTALLS_MOUNT)
  configure_file(cmake/penstock-mount.pc.in ${CMAKE_CURRENT_BINARY_DIR}/penstock-mount.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/penstock-mount.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

# Pages of the manual and shell completion, which the programs write when they are built.
if(PENSTOCK_BUILD_APPS)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/manual/ DESTINATION ${CMAKE_INSTALL_DATAROOTDIR} COMPONENT programs)
endif()
