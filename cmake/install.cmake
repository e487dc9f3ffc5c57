# What `cmake --install` lays down: the tool, the library, its two public headers and the package for find_package.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/octalane)

install(TARGETS octalane EXPORT octalaneTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS octalane_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/octalane DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT octalaneTargets NAMESPACE octalane:: DESTINATION ${package_dir})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/octalaneConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/octalaneConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/octalaneConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/octalaneConfig.cmake ${PROJECT_BINARY_DIR}/octalaneConfigVersion.cmake
        DESTINATION ${package_dir})
