# Install and export: a foreign project writes find_package(Penstock) and links Penstock::penstock.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/penstock DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS penstock EXPORT PenstockTargets)
install(EXPORT PenstockTargets NAMESPACE Penstock:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Penstock)

configure_package_config_file(cmake/PenstockConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/PenstockConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Penstock)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/PenstockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/PenstockConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/PenstockConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Penstock)
