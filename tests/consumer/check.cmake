# cmake -D BUILD=<octalane's build folder> -D SOURCE=<this folder> -D FLAGS=<compiler flags> -P check.cmake
# Installs octalane into a fresh prefix, then configures, builds and runs the consumer against it alone.
set(work ${BUILD}/consumer)
file(REMOVE_RECURSE ${work})
foreach(step
    "${CMAKE_COMMAND};--install;${BUILD};--prefix;${work}/prefix"
    "${CMAKE_COMMAND};-S;${SOURCE};-B;${work}/build;-G;Ninja;-DCMAKE_PREFIX_PATH=${work}/prefix;-DCMAKE_C_COMPILER=${C_COMPILER};-DCMAKE_CXX_COMPILER=${CXX_COMPILER};-DCMAKE_C_FLAGS=${FLAGS};-DCMAKE_CXX_FLAGS=${FLAGS}"
    "${CMAKE_COMMAND};--build;${work}/build"
    "${CMAKE_CTEST_COMMAND};--test-dir;${work}/build;--output-on-failure;--no-tests=error")
  execute_process(COMMAND ${step} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
