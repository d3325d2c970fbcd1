// The functions of TensorFlow's C interface that the operator calls, declared here because nothing
// of TensorFlow is there when hps is built. The process that loads the operator has them.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_Tensor;
struct TF_Status;

// Values of TF_DataType, and of TF_Code for success.
enum { TF_OK = 0, TF_FLOAT = 1, TF_INT32 = 3, TF_INT64 = 9 };

TF_Status* TF_NewStatus();
void TF_DeleteStatus(TF_Status*);
int TF_GetCode(const TF_Status*);
void TF_SetStatus(TF_Status*, int code, const char* message);

TF_OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char* name);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder*, const char* spec);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder*, const char* spec);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder*, const char* spec);
void TF_OpDefinitionBuilderSetIsStateful(TF_OpDefinitionBuilder*, bool is_stateful);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder*,
                                                     void (*function)(TF_ShapeInferenceContext*,
                                                                      TF_Status*));
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder*, TF_Status*);
void TF_ShapeInferenceContextSetUnknownShape(TF_ShapeInferenceContext*, TF_Status*);

TF_KernelBuilder* TF_NewKernelBuilder(const char* operator_name, const char* device_type,
                                      void* (*create)(TF_OpKernelConstruction*),
                                      void (*compute)(void*, TF_OpKernelContext*),
                                      void (*destroy)(void*));
void TF_RegisterKernelBuilder(const char* kernel_name, TF_KernelBuilder*, TF_Status*);
void TF_OpKernelConstruction_GetAttrSize(TF_OpKernelConstruction*, const char* name,
                                         int32_t* list_size, int32_t* total_size, TF_Status*);
void TF_OpKernelConstruction_GetAttrString(TF_OpKernelConstruction*, const char* name, char* value,
                                           size_t length_max, TF_Status*);
void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction*, TF_Status*);

int TF_NumInputs(TF_OpKernelContext*);
int TF_InputDatatype(TF_OpKernelContext*, int index);
void TF_GetInput(TF_OpKernelContext*, int index, TF_Tensor** tensor, TF_Status*);
TF_Tensor* TF_AllocateOutput(TF_OpKernelContext*, int index, int dtype, const int64_t* sizes,
                             int dim, size_t bytes, TF_Status*);
void TF_OpKernelContext_Failure(TF_OpKernelContext*, TF_Status*);

void* TF_TensorData(const TF_Tensor*);
int TF_NumDims(const TF_Tensor*);
int64_t TF_Dim(const TF_Tensor*, int index);
int64_t TF_TensorElementCount(const TF_Tensor*);
void TF_DeleteTensor(TF_Tensor*);

}  // extern "C"
