# The package with PyTorch, PyTorch Geometric and Numba, on CPU threads, and the examples; each skips where a module is missing. The gpu_*.py beside
# this file are run by hand on a machine with a GPU.
foreach(source device)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/penstock/${source} ${PROJECT_BINARY_DIR}/python/penstock/${source} SYMBOLIC)
endforeach()

# penstock_framework_test(NAME script argument ...)
function(penstock_framework_test name script)
  add_test(NAME python_${name}
    COMMAND ${Python_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/frameworks_run.py ${PROJECT_BINARY_DIR}/python ${script} ${ARGN})
  set_tests_properties(python_${name} PROPERTIES LABELS python TIMEOUT 1500 SKIP_RETURN_CODE 77
    ENVIRONMENT "PENSTOCK_INCLUDE=${PROJECT_SOURCE_DIR}/include")
endfunction()

foreach(name torch_module torch_edges torch_programs pyg numba_link examples_types)
  penstock_framework_test(${name} ${CMAKE_CURRENT_SOURCE_DIR}/${name}_test.py)
endforeach()
penstock_framework_test(gpu_torch_on_cpu ${CMAKE_CURRENT_SOURCE_DIR}/gpu_torch.py cpu)
if(TARGET penstock_cli)
  penstock_framework_test(gpu_keeper_on_cpu ${CMAKE_CURRENT_SOURCE_DIR}/gpu_keeper.py cpu --program $<TARGET_FILE:penstock_cli>)
endif()

set(examples ${PROJECT_SOURCE_DIR}/examples/python)
penstock_framework_test(example_embedding_graph ${examples}/embedding_graph.py --device cpu --rows 20000 --steps 50)
# By the interpreter of the build, which may have Ray without PyTorch.
add_test(NAME python_example_many_nodes COMMAND ${Python_EXECUTABLE} -B ${examples}/many_nodes.py --rows 20000 --kill --rest 1 --epochs 2)
set_tests_properties(python_example_many_nodes PROPERTIES LABELS python TIMEOUT 300 SKIP_RETURN_CODE 77 ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python")
penstock_framework_test(example_shared_region ${examples}/shared_region.py --device cpu)
penstock_framework_test(example_graph_training ${examples}/graph_training.py --device cpu --nodes 20000 --epochs 1)
